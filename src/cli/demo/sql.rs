//! The SQL of the demo: the file that a reader finds in the repository, with the broker of this process in it.

/// The script as it stands in the repository.
const SCRIPT: &str = include_str!("../../../docs/examples/demo.sql");
/// How the script names a broker.
const BROKER: &str = "${KAFKA:-127.0.0.1:9092}";

/// The script with the address of the broker.
pub(super) fn script(servers: &str) -> String {
    SCRIPT.replace(BROKER, servers)
}

/// Reads the sink's topic back, to see what was delivered, and how often.
pub(super) fn read_back(servers: &str) -> String {
    format!(
        "CREATE SOURCE hot_auctions_topic (window_start TIMESTAMP, auction BIGINT, bids BIGINT)
         WITH (connector = 'kafka', topic = 'hot_auctions', properties.bootstrap.server = '{servers}')
         FORMAT PLAIN ENCODE JSON;
         CREATE MATERIALIZED VIEW delivered AS
         SELECT window_start, auction, min(bids) AS least, max(bids) AS bids, count(*) AS times
         FROM hot_auctions_topic GROUP BY window_start, auction;"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_broker_is_put_in_everywhere() {
        let script = script("localhost:1");
        assert!(!script.contains("${"), "{script}");
        assert_eq!(script.matches("localhost:1").count(), 2);
        assert_eq!(crate::sql::parse::parse(&script).unwrap().len(), 4);
        assert_eq!(
            crate::sql::parse::parse(&read_back("localhost:1")).unwrap().len(),
            2
        );
    }
}
