//! Joins and subqueries as EXPLAIN shows them, and what is known of their rows.

use super::*;

#[test]
fn equal_columns_are_keys_and_what_else_is_asked_is_a_condition() {
    let shown = explain(
        &planned(
            "SELECT auction, at FROM bids LEFT JOIN clicks ON bidder = user_id AND price::double precision > user_id",
        ),
        false,
    );
    assert_eq!(
        shown.lines().take(4).collect::<Vec<_>>(),
        [
            "Project: auction, at",
            "  Left join: bidder = user_id AND price::double precision > user_id::double precision; never closes",
            "    Source bids: auction, bidder, price; watermark date_time - interval '4 s' [lane]",
            "    Source clicks: user_id, at; no watermark [lane]",
        ]
    );
}

#[test]
fn a_relation_joined_with_itself_is_read_once() {
    let plan = planned("SELECT a.auction, b.bidder FROM bids a JOIN bids b ON a.auction = b.bidder");
    let scans = plan
        .nodes
        .iter()
        .filter(|node| matches!(node.op, StreamOp::SourceScan(_)));
    assert_eq!(scans.count(), 1);
    assert!(plan.root().append_only);
}

#[test]
fn a_join_on_windows_closes_and_one_without_says_that_it_does_not() {
    let windows = "SELECT a.auction, b.bidder FROM TUMBLE(bids, date_time, INTERVAL '10' SECOND) a
        JOIN TUMBLE(bids, date_time, INTERVAL '10' SECOND) b ON a.window_end = b.window_end AND a.auction = b.auction";
    let plan = planned(windows);
    let shown = explain(&plan, false);
    assert!(
        shown.contains("window_end = window_end AND auction = auction; closes at window_end"),
        "{shown}"
    );
    assert_eq!(plan.notices, Vec::<String>::new());

    let plan = planned("SELECT at FROM bids JOIN clicks ON bidder = user_id");
    assert_eq!(
        plan.notices,
        [
            "nothing cleans the state of the join on bidder = user_id. It grows with the rows of both sides: join on equal \
             windows over event time, or bound the time between rows that match, to bound it."
        ]
    );
}

#[test]
fn a_bound_between_event_times_lets_rows_go() {
    let plan = planned(
        "SELECT a.auction FROM bids a JOIN bids b ON a.auction = b.bidder
         AND a.date_time BETWEEN b.date_time - INTERVAL '5' SECOND AND b.date_time + INTERVAL '10' SECOND",
    );
    let shown = explain(&plan, false);
    assert!(
        shown.contains("; left rows go after date_time + 5 s, right rows go after date_time + 10 s"),
        "{shown}"
    );
    assert_eq!(plan.notices, Vec::<String>::new());

    let plan = planned(
        "SELECT a.auction FROM bids a JOIN bids b ON a.auction = b.bidder AND a.date_time >= b.date_time",
    );
    let shown = explain(&plan, false);
    assert!(
        shown.contains("; left rows go after date_time, right rows stay"),
        "{shown}"
    );
    assert_eq!(plan.notices.len(), 1);
}

#[test]
fn the_key_of_a_join_is_that_of_the_side_whose_rows_have_one_match() {
    let key = |text: &str| {
        let plan = planned(text);
        let root = plan.root();
        root.key.as_ref().map(|key| {
            key.iter()
                .map(|column| root.schema.field(*column).name().clone())
                .collect::<Vec<_>>()
        })
    };
    let counts = "(SELECT auction, count(*) AS n FROM bids GROUP BY auction)";
    let bidders = "(SELECT bidder, count(*) AS m FROM bids GROUP BY bidder)";
    let by_key =
        format!("SELECT a.auction, n, m FROM {counts} a LEFT JOIN {bidders} b ON a.auction = b.bidder");
    assert_eq!(key(&by_key), Some(vec!["auction".to_owned()]));
    let by_other = format!("SELECT a.auction, b.bidder FROM {counts} a JOIN {bidders} b ON n = m");
    assert_eq!(
        key(&by_other),
        Some(vec!["auction".to_owned(), "bidder".to_owned()])
    );
    let full =
        format!("SELECT a.auction, b.bidder FROM {counts} a FULL JOIN {bidders} b ON a.auction = b.bidder");
    assert_eq!(key(&full), None);
    assert_eq!(
        key("SELECT bids.auction FROM bids JOIN totals ON bids.auction = totals.auction"),
        None
    );
    let semi = format!("SELECT auction, n FROM {counts} a WHERE n IN (SELECT user_id FROM clicks)");
    assert_eq!(key(&semi), Some(vec!["auction".to_owned()]));
}

#[test]
fn subqueries_become_joins() {
    for (text, join) in [
        (
            "SELECT auction FROM bids WHERE bidder IN (SELECT user_id FROM clicks)",
            "Semi join: bidder = user_id",
        ),
        (
            "SELECT auction FROM bids WHERE NOT EXISTS (SELECT 1 FROM clicks WHERE user_id = bidder)",
            "Anti join: bidder = user_id",
        ),
        (
            "SELECT auction FROM bids WHERE bidder NOT IN (SELECT user_id FROM clicks)",
            "Anti join: bidder = user_id",
        ),
        (
            "SELECT auction FROM bids WHERE price > (SELECT max(user_id) FROM clicks)",
            "oin: ",
        ),
        (
            "SELECT auction, (SELECT user_id FROM clicks) AS u FROM bids",
            "Single row",
        ),
        (
            "SELECT auction FROM bids a WHERE price = (SELECT user_id FROM clicks WHERE user_id = a.bidder)",
            "oin: ",
        ),
        (
            "SELECT bids.auction FROM bids JOIN clicks ON bidder IN (SELECT user_id FROM clicks)",
            "oin: ",
        ),
    ] {
        let shown = explain(&planned(text), false);
        assert!(shown.contains(join), "{text}\n{shown}");
    }
}

#[test]
fn what_joins_and_subqueries_lack_is_refused_by_name() {
    for text in [
        "SELECT auction FROM bids a WHERE price = (SELECT user_id FROM clicks WHERE user_id > a.bidder)",
        "SELECT auction FROM bids a, LATERAL (SELECT user_id FROM clicks WHERE user_id > a.bidder ORDER BY user_id LIMIT 1) c",
    ] {
        let error = error_of(text);
        assert_eq!(error.state, SqlState::FeatureNotSupported, "{text}: {error:?}");
    }
}
