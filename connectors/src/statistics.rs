//! What a client of the outside world tells of itself now and then: traffic, brokers, partitions. For people and metrics; nothing
//! rests on it.

/// Figures of one client as it told them last. What counts up does so since the client was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientStatistics {
    /// Its name, as the outside world knows it.
    pub client: String,
    /// What it does: `consumer` or `producer`.
    pub role: String,
    /// Messages that wait in it to be sent, or to be served.
    pub waiting_messages: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// What it has sent.
    pub sent: Traffic,
    /// What it has received.
    pub received: Traffic,
    /// Its brokers.
    pub brokers: Vec<BrokerStatistics>,
    /// Its partitions.
    pub partitions: Vec<PartitionStatistics>,
}

/// What went one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests, or answers.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records.
    pub messages: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// One broker as a client sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokerStatistics {
    /// Its address and number.
    pub name: String,
    /// Whether the client is connected.
    pub is_up: bool,
    /// What was sent to it.
    pub sent: Traffic,
    /// What was received from it.
    pub received: Traffic,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// Requests that wait for an answer.
    pub waiting_requests: u64,
    /// How long an answer took on average in the last interval (µs).
    pub round_trip_us: u64,
    /// How often the client has connected or tried to.
    pub connects: u64,
    /// How often it was disconnected.
    pub disconnects: u64,
}

/// One partition as a client sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionStatistics {
    /// The topic.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
    /// Records that were fetched and not taken yet, or that wait to be sent.
    pub queued_messages: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// The first offset that the broker has; `None` if not known.
    pub low_offset: Option<i64>,
    /// One past the last one; `None` if not known.
    pub high_offset: Option<i64>,
    /// Records sent.
    pub sent_messages: u64,
    /// Records received.
    pub received_messages: u64,
    /// Bytes of records received.
    pub received_bytes: u64,
}
