//! What is refused, and how it is said.

use super::*;

#[test]
fn what_streaming_queries_lack_is_refused_by_name_and_place() {
    for (text, what, place) in [
        (
            "SELECT auction FROM bids INTERSECT ALL SELECT bidder FROM bids",
            "INTERSECT ALL",
            "SELECT bidder",
        ),
        (
            "SELECT auction FROM bids EXCEPT ALL SELECT bidder FROM bids",
            "EXCEPT ALL",
            "SELECT bidder",
        ),
        (
            "SELECT b.bidder, (SELECT max(x.n) FROM (SELECT count(*) AS n FROM bids o WHERE o.auction = b.auction) x) AS m FROM bids b",
            "a subquery that reads outer columns in this way",
            "b.auction) x",
        ),
        (
            "SELECT b.bidder, l.n FROM bids b, LATERAL (SELECT count(*) AS n FROM bids o WHERE o.auction = b.auction HAVING count(*) > 5) l",
            "a subquery that reads outer columns in this way",
            "b.auction HAVING",
        ),
    ] {
        let (message, at) = message_at(text);
        assert_eq!(message, format!("{what} is not supported"), "{text}");
        assert!(at.starts_with(place), "{text}: {at}");
    }
}

#[test]
fn what_streaming_queries_lack_is_refused_by_name_where_the_place_is_not_known() {
    for text in [
        "WITH RECURSIVE r AS (SELECT 1 AS n) SELECT * FROM r",
        "SELECT now() FROM bids",
        "SELECT * FROM bids WHERE kts > current_timestamp OR price > 1",
        "SELECT * FROM bids WHERE kts = now()",
        "SELECT * FROM bids WHERE kts > now() - INTERVAL '1 month'",
        "SELECT now() - kts AS age FROM bids",
        "SELECT auction, count(*) FROM bids GROUP BY auction HAVING count(*) FILTER (WHERE kts > now()) > 1",
        "SELECT random() FROM bids",
    ] {
        let error = error_of(text);
        assert_eq!(error.state, SqlState::FeatureNotSupported, "{text}: {error:?}");
        assert!(
            error.message.ends_with("in a streaming query is not supported"),
            "{text}: {error:?}"
        );
    }
}

#[test]
fn names_that_do_not_exist_are_shown_with_place_and_suggestion() {
    for (text, message, hint, place) in [
        (
            "SELECT pirce FROM bids",
            "column \"pirce\" does not exist",
            Some("Did you mean \"price\"?"),
            "pirce",
        ),
        (
            "SELECT b.prize FROM bids b",
            "column b.prize does not exist",
            Some("Did you mean \"price\"?"),
            "b.prize",
        ),
        (
            "SELECT price FROM bidz",
            "relation \"bidz\" does not exist",
            Some("Did you mean \"bids\"?"),
            "bidz",
        ),
        (
            "SELECT lowr(channel) FROM bids",
            "function lowr does not exist",
            Some("Did you mean \"lower\"?"),
            "lowr",
        ),
        (
            "SELECT x.price FROM bids",
            "missing FROM-clause entry for table \"x\"",
            None,
            "x.price",
        ),
        (
            "SELECT count(*) FROM TUMBLE(bids, dat_time, INTERVAL '1' SECOND)",
            "column \"dat_time\" does not exist",
            Some("Did you mean \"date_time\"?"),
            "dat_time",
        ),
    ] {
        let error = error_of(text);
        assert_eq!(error.message, message, "{text}");
        assert_eq!(error.hint.as_deref(), hint, "{text}");
        let position = error.position.unwrap_or_else(|| panic!("{text}: no position"));
        assert!(
            text[position..].starts_with(place),
            "{text}: {}",
            &text[position..]
        );
    }
}

#[test]
fn errors_speak_postgresql() {
    for (text, state, message) in [
        (
            "SELECT price, count(*) FROM bids GROUP BY auction",
            SqlState::GroupingError,
            "column \"bids.price\" must appear in the GROUP BY clause or be used in an aggregate function",
        ),
        (
            "SELECT auction FROM bids UNION ALL SELECT auction, price FROM bids",
            SqlState::SyntaxError,
            "each UNION query must have the same number of columns",
        ),
        (
            "SELECT 9223372036854775807 + 1 FROM bids",
            SqlState::NumericValueOutOfRange,
            "bigint out of range",
        ),
        (
            "SELECT auction, auction FROM bids",
            SqlState::DuplicateColumn,
            "column \"auction\" specified more than once",
        ),
        (
            "SELECT count(*), count(price) FROM bids",
            SqlState::DuplicateColumn,
            "column \"count\" specified more than once",
        ),
        (
            "SELECT sum(channel) FROM bids",
            SqlState::UndefinedFunction,
            "function sum(character varying) does not exist",
        ),
        (
            "SELECT 'x'::int FROM bids",
            SqlState::InvalidTextRepresentation,
            "invalid input syntax for type integer: \"x\"",
        ),
        (
            "SELECT channel + date_time FROM bids",
            SqlState::UndefinedFunction,
            "operator does not exist: character varying + timestamp without time zone",
        ),
        (
            "SELECT price::jsonb FROM bids",
            SqlState::CannotCoerce,
            "cannot cast type bigint to jsonb",
        ),
    ] {
        let error = error_of(text);
        assert_eq!((error.state, error.message.as_str()), (state, message), "{text}");
    }
}

#[test]
fn windows_refuse_what_they_cannot_do() {
    for (call, message) in [
        (
            "TUMBLE(bids, date_time, INTERVAL '1' MONTH)",
            "a window of months or years is not supported",
        ),
        (
            "TUMBLE(bids, date_time, INTERVAL '-1' SECOND)",
            "the size and the slide of a window must be positive",
        ),
        (
            "TUMBLE(bids, date_time, 10)",
            "the size of a window must be an interval",
        ),
        (
            "TUMBLE(bids, price, INTERVAL '1' SECOND)",
            "column \"price\" is of type bigint",
        ),
        (
            "TUMBLE(bids, date_time)",
            "the arguments of TUMBLE(relation, time column, size [, offset]) are wrong",
        ),
        (
            "HOP(bids, date_time, INTERVAL '1' SECOND, INTERVAL '1' YEAR)",
            "a window of months or years is not supported",
        ),
        (
            "HOP(bids, date_time, INTERVAL '1' SECOND, INTERVAL '2' DAY)",
            "a row would stand in more than 10000 windows",
        ),
        (
            "TUMBLE(TUMBLE, date_time, INTERVAL '1' SECOND)",
            "relation \"tumble\" does not exist",
        ),
        (
            "SESSION(bids, date_time, INTERVAL '-1' SECOND)",
            "the gap of a session must be positive",
        ),
        (
            "SESSION(bids PARTITION BY price + 1, date_time, INTERVAL '1' SECOND)",
            "an expression in PARTITION BY of SESSION is not supported",
        ),
        (
            "CUMULATE(bids, date_time, INTERVAL '7' SECOND, INTERVAL '10' SECOND)",
            "the size of a window of CUMULATE must be a multiple of its step",
        ),
        (
            "CUMULATE(bids, date_time, INTERVAL '1' SECOND, INTERVAL '1' DAY)",
            "a row would stand in more than 10000 windows",
        ),
    ] {
        let error = error_of(&format!("SELECT * FROM {call}"));
        assert_eq!(error.message, message, "{call}");
    }
    let error = error_of("SELECT TUMBLE(date_time, INTERVAL '1' SECOND) FROM bids");
    assert_eq!(error.detail.as_deref(), Some("Window functions stand in FROM."));
}

#[test]
fn emit_on_window_close_says_what_is_missing() {
    let detail = |text: &str| {
        let error = plan_of(text, true).unwrap_err();
        assert_eq!(error.state, SqlState::InvalidObjectDefinition, "{error:?}");
        error.detail.unwrap()
    };
    let no_watermark = "SELECT count(*) FROM TUMBLE(clicks, at, INTERVAL '1' SECOND) GROUP BY window_end";
    assert_eq!(detail(no_watermark), "Source \"clicks\" has no WATERMARK.");
    let other_column = "SELECT count(*) FROM TUMBLE(bids, kts, INTERVAL '1' SECOND) GROUP BY window_end";
    assert_eq!(
        detail(other_column),
        "\"kts\" is not the column of a WATERMARK clause."
    );
    let not_grouped =
        "SELECT auction, count(*) FROM TUMBLE(bids, date_time, INTERVAL '1' SECOND) GROUP BY auction";
    assert_eq!(
        detail(not_grouped),
        "GROUP BY contains neither window_start nor window_end."
    );
    assert_eq!(
        detail("SELECT auction, count(*) FROM bids GROUP BY auction"),
        "The query has no window."
    );
    assert!(detail("SELECT auction FROM bids").starts_with("The query has no GROUP BY"));
}

#[test]
fn what_is_nested_too_deeply_is_refused_before_it_overflows_the_stack() {
    let chain = |n: usize| format!("SELECT {} FROM bids", vec!["price"; n].join(" + "));
    let nested = |n: usize| {
        format!(
            "SELECT * FROM {}bids{}",
            "(SELECT * FROM ".repeat(n),
            ") t".repeat(n)
        )
    };
    let parentheses = |n: usize| format!("SELECT {}price{} FROM bids", "(-".repeat(n), ")".repeat(n));
    let unions = |n: usize| vec!["SELECT price FROM bids"; n].join(" UNION ALL ");
    planned(&chain(100));
    planned(&nested(6));
    planned(&unions(40));
    planned(&parentheses(15));
    for text in [chain(200), chain(999), nested(40), unions(200)] {
        assert_eq!(error_of(&text).state, SqlState::StatementTooComplex);
    }
}
