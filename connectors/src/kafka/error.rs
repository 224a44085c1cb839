//! librdkafka's codes and complaints in words that say what happened, where, and what to do.

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::context::Trouble;
use crate::error::{ConnectorError, ErrorKind};

const CHECK_ADDRESS: &str = "Check properties.bootstrap.server.";
const CHECK_BOTH: &str = "Check properties.bootstrap.server and properties.security.protocol.";

/// Which broker a complaint is about, and the reason without librdkafka's decoration.
///
/// `sasl_ssl://b1:9093/bootstrap: Connect to ipv4#10.0.0.1:9093 failed: Connection refused (after 0ms in state CONNECT)`
/// is about `b1:9093`, for the reason `Connect to ipv4#10.0.0.1:9093 failed: Connection refused`.
fn broker_and_reason(text: &str) -> (Option<&str>, &str) {
    let (broker, rest) = match text.split_once(": ") {
        Some((head, rest)) if head.contains('/') && !head.contains(' ') => {
            let host = head.rsplit_once("://").map_or(head, |(_, host)| host);
            (Some(host.split('/').next().unwrap_or(host)), rest)
        }
        _ => (None, text),
    };
    (broker, rest.split(" (after ").next().unwrap_or(rest).trim())
}

/// The reason why a client does not get through, from its loudest complaint.
pub(super) fn unreachable(trouble: &Trouble, servers: &str) -> ConnectorError {
    let (broker, reason) = broker_and_reason(&trouble.text);
    let broker = broker.unwrap_or(servers);
    match trouble.code {
        Code::Authentication | Code::SaslAuthenticationFailed => ConnectorError::new(
            ErrorKind::Denied,
            format!("Kafka broker \"{broker}\" refused the credentials"),
        )
        .with_detail(sentence(reason))
        .with_hint(
            "Check properties.security.protocol, properties.sasl.mechanism, properties.sasl.username and \
             properties.sasl.password.",
        ),
        Code::SSL => ConnectorError::new(
            ErrorKind::Denied,
            format!("the TLS handshake with Kafka broker \"{broker}\" failed"),
        )
        .with_detail(sentence(reason))
        .with_hint("Check properties.security.protocol and properties.ssl.ca.location."),
        Code::Resolve => ConnectorError::new(
            ErrorKind::Transient,
            format!("the host of Kafka broker \"{broker}\" is not known"),
        )
        .with_detail(sentence(reason))
        .with_hint(CHECK_ADDRESS),
        _ if trouble.text.contains("SSL_HANDSHAKE") => handshake(broker, reason),
        _ => disconnected(broker, reason, trouble.code),
    }
}

/// A connection that ended before both sides understood each other. A broker that is shutting down does that as well, so
/// it may work later.
fn handshake(broker: &str, reason: &str) -> ConnectorError {
    ConnectorError::new(
        ErrorKind::Transient,
        format!("Kafka broker \"{broker}\" closed the connection during the handshake"),
    )
    .with_detail(sentence(reason))
    .with_hint("One side may want TLS or a login and the other not: check properties.security.protocol.")
}

fn disconnected(broker: &str, reason: &str, code: Code) -> ConnectorError {
    let transient =
        |message: String| ConnectorError::new(ErrorKind::Transient, message).with_detail(sentence(reason));
    if reason.contains("Connection refused") {
        return transient(format!("Kafka broker \"{broker}\" refused the connection"))
            .with_hint(format!("Is a broker listening there? {CHECK_ADDRESS}"));
    }
    if reason.contains("security.protocol") || reason.contains("SSL listener") {
        return handshake(broker, reason);
    }
    if reason.starts_with("Disconnected") {
        return transient(format!("Kafka broker \"{broker}\" closed the connection"))
            .with_hint("It may be restarting, or want TLS or a login: check properties.security.protocol.");
    }
    match code {
        Code::AllBrokersDown => {
            transient(format!("no Kafka broker answers at \"{broker}\"")).with_hint(CHECK_BOTH)
        }
        Code::BrokerTransportFailure | Code::OperationTimedOut | Code::NetworkException => {
            transient(format!("the connection to Kafka broker \"{broker}\" is down")).with_hint(CHECK_BOTH)
        }
        code => ConnectorError::new(kind(code), format!("Kafka reports: {reason}")),
    }
}

/// The error of a call about `topic` that failed with `code`.
pub(super) fn of_topic(code: Code, topic: &str) -> ConnectorError {
    let error = |message: String| ConnectorError::new(kind(code), message);
    match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => unknown_topic(topic),
        Code::TopicAuthorizationFailed => error(format!("access to Kafka topic \"{topic}\" was refused"))
            .with_hint("The user needs the permissions Describe and Read, or Write for a sink."),
        Code::ClusterAuthorizationFailed => error("access to the Kafka cluster was refused".into())
            .with_hint("An idempotent producer needs the permission IdempotentWrite on the cluster before Kafka 2.8."),
        Code::GroupAuthorizationFailed => error("access to the Kafka consumer group was refused".into())
            .with_hint("Offsets are committed for lag tools only; option group.id names another group."),
        Code::MessageSizeTooLarge => error(format!("a record is too large for Kafka topic \"{topic}\""))
            .with_hint("Raise properties.message.max.bytes here and max.message.bytes of the topic."),
        Code::InvalidTopic => error(format!("\"{topic}\" is not a valid name of a Kafka topic")),
        Code::LeaderNotAvailable | Code::NotLeaderForPartition => {
            error(format!("a partition of Kafka topic \"{topic}\" has no leader at the moment"))
        }
        code => error(format!("Kafka topic \"{topic}\": {}", lowercase_first(&code.to_string()))),
    }
}

/// The error for a topic that the broker does not have.
pub(super) fn unknown_topic(topic: &str) -> ConnectorError {
    ConnectorError::new(ErrorKind::NotFound, format!("Kafka has no topic \"{topic}\""))
}

/// The error of a client that could not be made from its options. librdkafka may quote the value of a property; the
/// text is only used where that is no secret.
pub(super) fn of_client(error: &KafkaError) -> ConnectorError {
    match error {
        KafkaError::ClientCreation(reason) => {
            ConnectorError::invalid("the options do not make a Kafka client").with_detail(sentence(reason))
        }
        KafkaError::ClientConfig(_, reason, key, _) if !crate::options::is_secret(&[], key) => {
            ConnectorError::invalid(format!("option \"properties.{key}\" is refused by the client"))
                .with_detail(sentence(reason))
        }
        KafkaError::ClientConfig(_, _, key, _) => {
            ConnectorError::invalid(format!("option \"properties.{key}\" is refused by the client"))
        }
        other => ConnectorError::new(ErrorKind::Permanent, lowercase_first(&other.to_string())),
    }
}

/// What a caller does about a code.
pub(super) fn kind(code: Code) -> ErrorKind {
    match code {
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::OperationTimedOut
        | Code::MessageTimedOut
        | Code::TimedOutQueue
        | Code::RequestTimedOut
        | Code::Resolve
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::ReplicaNotAvailable
        | Code::BrokerNotAvailable
        | Code::NetworkException
        | Code::NotEnoughReplicas
        | Code::NotEnoughReplicasAfterAppend
        | Code::CoordinatorLoadInProgress
        | Code::CoordinatorNotAvailable
        | Code::NotCoordinator
        | Code::QueueFull
        | Code::PurgeQueue
        | Code::PurgeInflight
        | Code::Fatal
        | Code::OutOfOrderSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::KafkaStorageError => ErrorKind::Transient,
        Code::Authentication
        | Code::SSL
        | Code::SaslAuthenticationFailed
        | Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => ErrorKind::Denied,
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => ErrorKind::NotFound,
        Code::OffsetOutOfRange | Code::AutoOffsetReset => ErrorKind::PositionLost,
        _ => ErrorKind::Permanent,
    }
}

/// Words of librdkafka as a sentence.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if text.ends_with('?') => format!("{}{}", first.to_uppercase(), letters.as_str()),
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}

fn lowercase_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        format!("{}{}", first.to_lowercase(), letters.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(code: Code, text: &str) -> ConnectorError {
        unreachable(
            &Trouble {
                code,
                text: text.into(),
            },
            "b1:9092",
        )
    }

    #[test]
    fn a_refused_connection_names_the_broker() {
        let error = translated(
            Code::BrokerTransportFailure,
            "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)",
        );
        assert_eq!(error.kind, ErrorKind::Transient);
        assert_eq!(
            error.message,
            "Kafka broker \"127.0.0.1:1\" refused the connection"
        );
        assert_eq!(
            error.detail.as_deref(),
            Some("Connect to ipv4#127.0.0.1:1 failed: Connection refused.")
        );
    }

    #[test]
    fn a_host_without_an_address_is_named() {
        let error = translated(
            Code::Resolve,
            "nosuch:9092/bootstrap: Failed to resolve 'nosuch:9092': Name or service not known (after 3ms in state CONNECT)",
        );
        assert_eq!(
            error.message,
            "the host of Kafka broker \"nosuch:9092\" is not known"
        );
    }

    #[test]
    fn a_wrong_password_is_denied() {
        let error = translated(
            Code::Authentication,
            "sasl_plaintext://b7:9093/bootstrap: SASL authentication error: Authentication failed (after 5ms in state AUTH_REQ)",
        );
        assert_eq!(
            (error.kind, error.message.as_str()),
            (
                ErrorKind::Denied,
                "Kafka broker \"b7:9093\" refused the credentials"
            )
        );
    }

    #[test]
    fn a_handshake_that_fails_points_to_the_security_protocol() {
        let error = translated(
            Code::BrokerTransportFailure,
            "b1:9093/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect \
             security.protocol configuration (connecting to a SSL listener?) or broker version is < 0.10",
        );
        assert!(error.hint.expect("a hint").contains("security.protocol"));
    }

    #[test]
    fn a_broker_that_hangs_up_points_to_the_security_protocol_too() {
        let error = translated(
            Code::BrokerTransportFailure,
            "b1:9093/bootstrap: Disconnected (after 1ms in state UP)",
        );
        assert_eq!(error.message, "Kafka broker \"b1:9093\" closed the connection");
        assert!(error.hint.expect("a hint").contains("security.protocol"));
    }

    #[test]
    fn a_question_of_librdkafka_stays_one() {
        assert_eq!(
            sentence("connecting to a PLAINTEXT broker listener?"),
            "Connecting to a PLAINTEXT broker listener?"
        );
    }

    #[test]
    fn no_code_is_the_whole_text() {
        for code in [
            Code::BrokerTransportFailure,
            Code::AllBrokersDown,
            Code::OperationTimedOut,
        ] {
            let error = translated(code, "1/1 brokers are down");
            assert!(
                !error.message.contains("BrokerTransportFailure"),
                "{}",
                error.message
            );
            assert!(error.message.contains("b1:9092"), "{}", error.message);
        }
    }

    #[test]
    fn codes_about_a_topic_name_it() {
        for code in [
            Code::UnknownTopicOrPartition,
            Code::TopicAuthorizationFailed,
            Code::MessageSizeTooLarge,
            Code::InvalidRequest,
        ] {
            assert!(of_topic(code, "bids").message.contains("\"bids\""));
        }
    }
}
