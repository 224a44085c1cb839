//! The calls into librdkafka that `rdkafka` does not wrap: batch consumption of one partition's queue, what the client
//! has cached about a partition, topic ids, and the names of all properties.
//!
//! This is the only file of the crate with unsafe code. Its arguments rest on librdkafka's documented behaviour and on
//! the layout in the generated bindings, so a test fails when the version of librdkafka moves: read the arguments
//! again before changing the number in it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::bindings as raw;
use rdkafka::client::Client;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::types::RDKafkaErrorCode;

use super::context::ClientEvents;
use super::error;
use crate::error::ErrorKind;
use crate::source::{LaneWaker, RecordHeaders};

/// The consumer of one source.
pub(super) type Consumer = BaseConsumer<ClientEvents>;

/// The code of a message that is a record.
pub(super) const NO_ERROR: i32 = raw::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR as i32;
/// The code of a message that says where the partition ends.
pub(super) const PARTITION_EOF: i32 = raw::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF as i32;
/// The code of a message that says that the position does not exist (any more).
pub(super) const POSITION_LOST: i32 = raw::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET as i32;

fn millis(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX)
}

/// The queue of one partition, split from its consumer, and the messages last taken from it.
pub(super) struct PartitionQueue {
    messages: Vec<NonNull<raw::rd_kafka_message_t>>,
    headers: Vec<Headers>,
    queue: NonNull<raw::rd_kafka_queue_t>,
    topic: CString,
    partition: i32,
    /// Boxed, so that librdkafka can keep a pointer to it.
    waker: Option<Box<LaneWaker>>,
    /// Last, so that the client outlives everything taken from it.
    consumer: Arc<Consumer>,
}

// SAFETY: librdkafka's queues and messages may be used from any thread, by one at a time for the messages, which
// `&mut self` ensures; the waker is `Send + Sync` by its type.
unsafe impl Send for PartitionQueue {}

impl PartitionQueue {
    /// Splits the queue of `partition` from the consumer. To be called before the partition is assigned, so that none
    /// of its messages goes elsewhere. `None` when the topic has a NUL in its name or the client refuses.
    pub(super) fn split(consumer: &Arc<Consumer>, topic: &str, partition: i32) -> Option<Self> {
        let topic = CString::new(topic).ok()?;
        // SAFETY: the client is alive while `consumer` is, and the topic is a NUL-terminated string that librdkafka
        // copies. The returned queue is a counted reference of our own.
        let queue = unsafe {
            raw::rd_kafka_queue_get_partition(consumer.client().native_ptr(), topic.as_ptr(), partition)
        };
        let queue = NonNull::new(queue)?;
        // SAFETY: the queue is alive. Forwarding to null makes it stand alone, also across assignments, because it
        // marks the forwarding as the application's choice.
        unsafe { raw::rd_kafka_queue_forward(queue.as_ptr(), ptr::null_mut()) };
        Some(Self {
            messages: Vec::new(),
            headers: Vec::new(),
            queue,
            topic,
            partition,
            waker: None,
            consumer: Arc::clone(consumer),
        })
    }

    /// Calls `waker` (under the queue's lock, on a thread of librdkafka) when a message arrives after the queue was
    /// last read, and once now if something is there already.
    pub(super) fn set_waker(&mut self, waker: LaneWaker) {
        let waker = Box::new(waker);
        let opaque: *const LaneWaker = &*waker;
        // SAFETY: `wake` casts the pointer back to the type that it has here. The box lives until the callback is
        // replaced (below, the old one dies after the call) or switched off (in `drop`); both calls take the lock
        // under which callbacks run, so none runs on when they return.
        unsafe {
            raw::rd_kafka_queue_cb_event_enable(
                self.queue.as_ptr(),
                Some(wake),
                opaque.cast_mut().cast::<c_void>(),
            );
        }
        let waker = self.waker.insert(waker);
        // SAFETY: the queue is alive.
        if unsafe { raw::rd_kafka_queue_length(self.queue.as_ptr()) } > 0 {
            waker();
        }
    }

    /// Frees what was taken before and takes up to `max` messages: what is there, or what comes first within
    /// `timeout` together with what is there then. Gives the number of messages.
    pub(super) fn take(&mut self, max: usize, timeout: Duration) -> usize {
        self.free();
        if max == 0 {
            return 0;
        }
        self.messages.reserve(max);
        // The batch call waits for a full batch until its timeout is over. So it is asked without waiting first, then
        // for a single message, then again without waiting.
        if self.append(max, Duration::ZERO) == 0 && !timeout.is_zero() && self.append(1, timeout) == 1 {
            self.append(max - 1, Duration::ZERO);
        }
        self.messages.len()
    }

    fn append(&mut self, max: usize, timeout: Duration) -> usize {
        let room = self.messages.capacity() - self.messages.len();
        let max = max.min(room);
        if max == 0 {
            return 0;
        }
        let length = self.messages.len();
        // SAFETY: the spare capacity has room for `max` pointers, and `NonNull<T>` has the layout of `*mut T`. The
        // call writes as many non-null pointers as it returns, each owned by us from then on. The queue is alive.
        unsafe {
            let spare = self
                .messages
                .as_mut_ptr()
                .add(length)
                .cast::<*mut raw::rd_kafka_message_t>();
            let taken = raw::rd_kafka_consume_batch_queue(self.queue.as_ptr(), millis(timeout), spare, max);
            let taken = usize::try_from(taken).unwrap_or(0);
            self.messages.set_len(length + taken);
            taken
        }
    }

    fn free(&mut self) {
        self.headers.clear();
        for message in self.messages.drain(..) {
            // SAFETY: each pointer came from the batch call, is owned by us and freed once; nothing borrowed from it
            // is alive, because that borrows `self`.
            unsafe { raw::rd_kafka_message_destroy(message.as_ptr()) };
        }
    }

    /// Parses the headers of all messages taken, for [`PartitionQueue::headers`].
    pub(super) fn parse_headers(&mut self) {
        self.headers.clear();
        for message in &self.messages {
            let mut list = ptr::null_mut();
            // SAFETY: the message is alive and nobody else uses it; the list belongs to the message and lives as long.
            // It is only written on success, and stays null otherwise.
            let _ = unsafe { raw::rd_kafka_message_headers(message.as_ptr(), &raw mut list) };
            self.headers.push(Headers(list));
        }
    }

    /// The messages taken last.
    pub(super) fn messages(&self) -> impl ExactSizeIterator<Item = Message<'_>> {
        self.messages.iter().map(|message| Message {
            raw: *message,
            queue: PhantomData,
        })
    }

    /// The headers of message `index`, after [`PartitionQueue::parse_headers`].
    pub(super) fn headers(&self, index: usize) -> Option<&Headers> {
        self.headers.get(index)
    }

    /// The end of the partition as the client last heard it in an answer to a fetch. No call leaves the process.
    pub(super) fn cached_end(&self) -> Option<i64> {
        let (mut low, mut high) = (-1, -1);
        // SAFETY: the client is alive, the topic is NUL-terminated, and both results are ours.
        let code = unsafe {
            raw::rd_kafka_get_watermark_offsets(
                self.consumer.client().native_ptr(),
                self.topic.as_ptr(),
                self.partition,
                &raw mut low,
                &raw mut high,
            )
        };
        (code == raw::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0).then_some(high)
    }
}

impl Drop for PartitionQueue {
    fn drop(&mut self) {
        self.free();
        // SAFETY: the queue is alive until the second call. The first switches the callback off under the lock that
        // callbacks run under, so the waker may die afterwards. The client dies after both.
        unsafe {
            raw::rd_kafka_queue_cb_event_enable(self.queue.as_ptr(), None, ptr::null_mut());
            raw::rd_kafka_queue_destroy(self.queue.as_ptr());
        }
    }
}

/// Called by librdkafka when a queue becomes non-empty.
// SAFETY: only librdkafka calls it, with the `opaque` that `set_waker` registered.
unsafe extern "C" fn wake(_client: *mut raw::rd_kafka_t, opaque: *mut c_void) {
    // SAFETY: `opaque` is the pointer to the boxed waker that `set_waker` gave, alive as argued there.
    let waker = unsafe { &*opaque.cast::<LaneWaker>() };
    // A panic must not unwind into C. The waker's owner has nothing to be told that it does not know.
    let _ = catch_unwind(AssertUnwindSafe(|| waker()));
}

/// One message that a [`PartitionQueue`] holds.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    raw: NonNull<raw::rd_kafka_message_t>,
    queue: PhantomData<&'a PartitionQueue>,
}

impl<'a> Message<'a> {
    /// [`NO_ERROR`] for a record, else what happened.
    pub(super) fn code(self) -> i32 {
        // SAFETY: the message is alive for 'a. The field is read as the integer that C wrote: a broker may send a
        // code that the enum of the bindings does not have.
        unsafe { (&raw const (*self.raw.as_ptr()).err).cast::<i32>().read() }
    }

    /// The offset of the record, or the next offset in an event.
    pub(super) fn offset(self) -> i64 {
        // SAFETY: the message is alive for 'a.
        unsafe { (*self.raw.as_ptr()).offset }
    }

    /// The value; `None` if it is null.
    pub(super) fn value(self) -> Option<&'a [u8]> {
        // SAFETY: the message is alive for 'a and not changed; a non-null payload has `len` bytes.
        unsafe { bytes((*self.raw.as_ptr()).payload, (*self.raw.as_ptr()).len) }
    }

    /// The key; `None` if it is null.
    pub(super) fn key(self) -> Option<&'a [u8]> {
        // SAFETY: as for the value.
        unsafe { bytes((*self.raw.as_ptr()).key, (*self.raw.as_ptr()).key_len) }
    }

    /// Milliseconds since the epoch, if the record has a timestamp.
    pub(super) fn timestamp_ms(self) -> Option<i64> {
        let mut kind = raw::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive, and the kind is ours.
        let millis = unsafe { raw::rd_kafka_message_timestamp(self.raw.as_ptr(), &raw mut kind) };
        (kind != raw::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && millis >= 0)
            .then_some(millis)
    }

    /// What librdkafka says about an event that is an error.
    pub(super) fn error_text(self) -> String {
        String::from_utf8_lossy(self.value().unwrap_or_default()).into_owned()
    }
}

/// # Safety
/// `data` is null or has `length` bytes that are neither freed nor changed during `'a`.
unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Option<&'a [u8]> {
    let data = NonNull::new(data.cast_mut().cast::<u8>())?;
    // SAFETY: as the caller promises.
    Some(unsafe { std::slice::from_raw_parts(data.as_ptr(), length) })
}

/// The headers of one message; null if it has none.
pub(super) struct Headers(*mut raw::rd_kafka_headers_t);

impl RecordHeaders for Headers {
    fn len(&self) -> usize {
        if self.0.is_null() {
            return 0;
        }
        // SAFETY: the list belongs to a message that the queue holds; `self` is dropped before it is freed.
        unsafe { raw::rd_kafka_header_cnt(self.0) }
    }

    fn get(&self, index: usize) -> (&str, Option<&[u8]>) {
        assert!(index < self.len(), "header {index} of {}", self.len());
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the list is alive as in `len`, the index is within it, and the results are ours. The name is
        // NUL-terminated; name and value live as long as the list.
        unsafe {
            let code =
                raw::rd_kafka_header_get_all(self.0, index, &raw mut name, &raw mut value, &raw mut size);
            assert!(
                code == raw::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
                "a header within bounds is there"
            );
            let name = CStr::from_ptr(name).to_bytes();
            (valid_prefix(name), bytes(value, size))
        }
    }
}

/// Kafka requires UTF-8 in header names; of one that is not, the part that is.
fn valid_prefix(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_else(|error| {
        std::str::from_utf8(&name[..error.valid_up_to()]).expect("the prefix was found valid")
    })
}

/// Sends `offsets` to the group coordinator. The answer comes as an event of the consumer's queue, and so to
/// [`ClientEvents`] when the consumer is polled.
///
/// # Errors
/// When the client refuses outright.
pub(super) fn commit(consumer: &Consumer, offsets: &TopicPartitionList) -> Result<(), RDKafkaErrorCode> {
    let client = consumer.client().native_ptr();
    // SAFETY: the client and the list are alive during the calls; the list is copied. The queue is a counted reference
    // that is given back here, and the client keeps its own for the answer.
    let code = unsafe {
        let queue = raw::rd_kafka_queue_get_consumer(client);
        if queue.is_null() {
            return Err(RDKafkaErrorCode::UnknownGroup);
        }
        let code = raw::rd_kafka_commit_queue(client, offsets.ptr(), queue, None, ptr::null_mut());
        raw::rd_kafka_queue_destroy(queue);
        code
    };
    match code {
        raw::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        code => Err(code.into()),
    }
}

/// What a broker says about the id of a topic, which a topic created again under the same name does not share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TopicId {
    /// The id.
    Known(String),
    /// The broker knows no topic ids (Kafka before 2.8), or may not tell this one.
    NotTold,
    /// It did not answer in time.
    NoAnswer,
}

/// Asks the broker with number `broker` for the id of `topic`, and waits at most `timeout`.
pub(super) fn topic_id(
    client: &Client<ClientEvents>,
    topic: &str,
    broker: i32,
    timeout: Duration,
) -> TopicId {
    let Ok(topic) = CString::new(topic) else {
        return TopicId::NotTold;
    };
    let mut names: [*const c_char; 1] = [topic.as_ptr()];
    let client = client.native_ptr();
    let op = raw::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    let mut reason: [c_char; 256] = [0; 256];
    let (reason, length) = (reason.as_mut_ptr(), reason.len());
    // SAFETY: the client is alive during the call. Everything created here is destroyed here, in the reverse order,
    // and what is read from the event is copied before the event is destroyed.
    unsafe {
        let queue = raw::rd_kafka_queue_new(client);
        let options = raw::rd_kafka_AdminOptions_new(client, op);
        let topics = raw::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        // An option that librdkafka refuses leaves its default; the wait below is bounded all the same.
        let _ = raw::rd_kafka_AdminOptions_set_request_timeout(options, millis(timeout), reason, length);
        // Any broker can tell, so there is no need to find and wait for the controller.
        let _ = raw::rd_kafka_AdminOptions_set_broker(options, broker, reason, length);
        raw::rd_kafka_DescribeTopics(client, topics, options, queue);
        let event = raw::rd_kafka_queue_poll(queue, millis(timeout));
        let answer = if event.is_null() {
            TopicId::NoAnswer
        } else {
            described_topic_id(event)
        };
        if !event.is_null() {
            raw::rd_kafka_event_destroy(event);
        }
        raw::rd_kafka_TopicCollection_destroy(topics);
        raw::rd_kafka_AdminOptions_destroy(options);
        raw::rd_kafka_queue_destroy(queue);
        answer
    }
}

/// # Safety
/// `event` is alive.
unsafe fn described_topic_id(event: *mut raw::rd_kafka_event_t) -> TopicId {
    // SAFETY: the result and everything in it belong to the event; each pointer is checked before it is followed.
    unsafe {
        let code = raw::rd_kafka_event_error(event);
        if error::kind(code.into()) == ErrorKind::Transient {
            return TopicId::NoAnswer;
        }
        let result = raw::rd_kafka_event_DescribeTopics_result(event);
        if result.is_null() {
            return TopicId::NotTold;
        }
        let mut count = 0;
        let topics = raw::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if topics.is_null() || count == 0 {
            return TopicId::NotTold;
        }
        let failure = raw::rd_kafka_TopicDescription_error(*topics);
        let id = raw::rd_kafka_TopicDescription_topic_id(*topics);
        let failed = !failure.is_null()
            && raw::rd_kafka_error_code(failure) != raw::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        if failed || id.is_null() {
            return TopicId::NotTold;
        }
        let zero = raw::rd_kafka_Uuid_most_significant_bits(id) == 0
            && raw::rd_kafka_Uuid_least_significant_bits(id) == 0;
        let text = raw::rd_kafka_Uuid_base64str(id);
        if zero || text.is_null() {
            return TopicId::NotTold;
        }
        TopicId::Known(CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// The names of the properties of librdkafka that have a default, without aliases: it lists no others.
pub(super) fn property_names() -> Vec<String> {
    // SAFETY: both configurations are created, dumped and destroyed here, and the dumps are copied before they are
    // freed. A dump is an array of `count` strings: name, value, name, value.
    unsafe {
        let mut names = Vec::new();
        let mut count = 0;
        let global = raw::rd_kafka_conf_new();
        let dump = raw::rd_kafka_conf_dump(global, &raw mut count);
        collect_names(dump, count, &mut names);
        raw::rd_kafka_conf_destroy(global);
        let topic = raw::rd_kafka_topic_conf_new();
        let dump = raw::rd_kafka_topic_conf_dump(topic, &raw mut count);
        collect_names(dump, count, &mut names);
        raw::rd_kafka_topic_conf_destroy(topic);
        names
    }
}

/// # Safety
/// `dump` is a dump of `count` strings that nobody has freed.
unsafe fn collect_names(dump: *mut *const c_char, count: usize, names: &mut Vec<String>) {
    // SAFETY: as the caller promises; the strings are NUL-terminated.
    unsafe {
        for index in (0..count).step_by(2) {
            names.push(CStr::from_ptr(*dump.add(index)).to_string_lossy().into_owned());
        }
        raw::rd_kafka_conf_dump_free(dump, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_safety_arguments_were_made_for_this_librdkafka() {
        assert_eq!(rdkafka::util::get_rdkafka_version().1, "2.12.1");
    }

    #[test]
    fn librdkafka_tells_its_property_names() {
        let names = property_names();
        assert!(names.iter().any(|name| name == "fetch.wait.max.ms"));
        assert!(names.iter().any(|name| name == "auto.offset.reset"));
    }

    #[test]
    fn a_header_name_that_is_not_utf8_is_cut_where_it_stops_being_so() {
        assert_eq!(valid_prefix(b"ab\xff"), "ab");
    }
}
