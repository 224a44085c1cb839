//! What `\?` and `\h` print.

/// `\?`
pub(super) const COMMANDS: &str = "\
General
  \\q                     leave (also Ctrl-D)
  \\? | \\h [STATEMENT]    this list | the syntax of statements
  \\conninfo              which database this is
  \\set [NAME [VALUE]]    variables, which :name, :'name' and :\"name\" stand for | \\unset NAME
  \\! COMMAND             run a command of the operating system

Objects
  \\d [NAME]              all relations | columns and definition of one
  \\dt | \\dv | \\dm | \\dso | \\dsi [PATTERN]
                         tables | views | materialized views | sources | sinks
  \\df | \\di [PATTERN]     functions | indexes
  \\dS                    the system tables hw.*
  \\l                     databases

Statements
  \\g | \\gx               run the statement (again) | with one line per column
  \\watch [SECONDS] [c=N] run it again and again, until Ctrl-C or N times
  \\p | \\r | \\e           print | forget | edit the statement that is being typed, or the last one

Input and output
  \\i FILE                run a file
  \\copy TABLE | (QUERY) FROM | TO 'FILE' [csv header]
                         rows between a table and a file of this machine
  \\o [FILE]              write results to a file | to the terminal again
  \\echo TEXT             print a text
  \\x [on|off|auto]       one line per column
  \\timing [on|off]       how long statements take
  \\pset pager [on|off|always] | format [table|csv|json]
                         a pager for long output | how rows are written

A statement ends with a semicolon. Ctrl-C cancels it. SUBSCRIBE view; shows changes as they come.";

/// Statements and their syntax.
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    (
        "CREATE SOURCE",
        "CREATE SOURCE [IF NOT EXISTS] name (\n  column type [, …],\n  [column type AS expression,]\n  \
         [WATERMARK FOR column AS expression]\n)\n[INCLUDE key | partition | offset | timestamp | headers AS name]\n\
         WITH (connector = 'kafka' | 'nexmark' | 'memory', option = 'value' [, …])\n[FORMAT PLAIN ENCODE JSON];\n\n\
         SHOW OPTIONS FOR kafka lists the options.",
    ),
    (
        "CREATE TABLE",
        "CREATE TABLE [IF NOT EXISTS] name (\n  column type [NOT NULL] [DEFAULT expression] [PRIMARY KEY] [, …],\n  \
         [column type AS expression,]\n  [PRIMARY KEY (column, …)]\n)\n[APPEND ONLY]\n\
         [ON CONFLICT DO UPDATE | DO NOTHING | DO UPDATE IF NOT NULL]\n[WITH VERSION COLUMN (column)];",
    ),
    (
        "INSERT",
        "INSERT INTO table [(column, …)] VALUES (expression | DEFAULT, …) [, …] | query | DEFAULT VALUES\n\
         [ON CONFLICT [(column, …)] DO NOTHING | DO UPDATE SET column = expression [, …] [WHERE …]]\n\
         [RETURNING expression [, …]];",
    ),
    (
        "UPDATE",
        "[WITH …] UPDATE table [AS alias] SET column = expression | DEFAULT [, …]\n[FROM …] [WHERE …] [RETURNING expression [, …]];",
    ),
    (
        "DELETE",
        "[WITH …] DELETE FROM table [AS alias] [USING …] [WHERE …] [RETURNING expression [, …]];",
    ),
    ("TRUNCATE", "TRUNCATE [TABLE] table;"),
    ("FLUSH", "FLUSH;"),
    (
        "COPY",
        "COPY table [(column, …)] FROM STDIN [WITH (option [, …])];\n\
         COPY relation [(column, …)] | (query) | (SUBSCRIBE …) TO STDOUT [WITH (option [, …])];\n\n\
         Options: FORMAT text | csv | binary, HEADER [true | false | match], DELIMITER 'c', NULL 'text', QUOTE 'c', ESCAPE 'c',\n\
         FORCE_QUOTE (column, …) | *, FORCE_NOT_NULL (column, …), FORCE_NULL (column, …), ENCODING 'UTF8'.\n\
         \\copy reads and writes files of this machine.",
    ),
    (
        "CREATE VIEW",
        "CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name [(column, …)] AS query;",
    ),
    (
        "CREATE MATERIALIZED VIEW",
        "CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [(column, …)] [WITH (state.ttl = '1 h')] AS query\n[EMIT ON WINDOW CLOSE];",
    ),
    (
        "CREATE SINK",
        "CREATE SINK [IF NOT EXISTS] name FROM relation | AS query\nWITH (connector = 'kafka', topic = '…', \
         [primary_key = 'column, …',] option = 'value' [, …])\nFORMAT PLAIN | UPSERT ENCODE JSON;\n\
         CREATE SINK [IF NOT EXISTS] name INTO table [(column, …)] FROM relation | AS query;",
    ),
    (
        "CREATE FUNCTION",
        "CREATE [OR REPLACE] FUNCTION name ([argument] type [, …]) RETURNS type\n[IMMUTABLE | STABLE | VOLATILE] [STRICT] LANGUAGE SQL\n\
         AS $$ SELECT expression $$ | RETURN expression;",
    ),
    (
        "CREATE INDEX",
        "CREATE INDEX [IF NOT EXISTS] [name] ON relation (column [ASC | DESC] [NULLS FIRST | LAST] [, …]);",
    ),
    (
        "DROP",
        "DROP SOURCE | TABLE | VIEW | MATERIALIZED VIEW | INDEX | SINK | FUNCTION [IF EXISTS] name [, …] [CASCADE];",
    ),
    (
        "ALTER",
        "ALTER TABLE | MATERIALIZED VIEW | INDEX | SINK name RESUME;",
    ),
    (
        "SELECT",
        "SELECT expression [AS name] [, …]\nFROM table | view | source | hw.table | TUMBLE(relation, column, size) | \
         HOP(relation, column, hop, size)\n[WHERE …] [GROUP BY …] [HAVING …] [ORDER BY …] [LIMIT n];",
    ),
    ("WITH", "WITH name [(column, …)] AS (query) [, …]\nSELECT …;"),
    ("VALUES", "VALUES (expression, …) [, …];"),
    ("TABLE", "TABLE relation;"),
    (
        "SUBSCRIBE",
        "SUBSCRIBE [TO] relation | (query) [WITH (snapshot = true | false, progress = true | false)];",
    ),
    (
        "SHOW",
        "SHOW SOURCES | TABLES | VIEWS | MATERIALIZED VIEWS | INDEXES | SINKS | FUNCTIONS;\n\
         SHOW QUERIES | JOBS | OPERATORS | CHECKPOINTS | ERRORS | WATERMARKS | SETTINGS;\n\
         SHOW COLUMNS FROM relation;\nSHOW LANES [FROM source];\nSHOW CREATE [kind] name;\nSHOW OPTIONS [FOR connector];\nSHOW ALL | setting;",
    ),
    ("DESCRIBE", "DESCRIBE name;"),
    (
        "EXPLAIN",
        "EXPLAIN [VERBOSE] query | CREATE MATERIALIZED VIEW … | CREATE SINK …;\nEXPLAIN ANALYZE view | sink | query;\nEXPLAIN WHY view | sink;",
    ),
    ("CHECKPOINT", "CHECKPOINT;"),
    ("SET", "SET name = value;"),
    ("RESET", "RESET name | ALL;"),
    (
        "BEGIN",
        "BEGIN [ISOLATION LEVEL READ COMMITTED] [READ ONLY | READ WRITE];",
    ),
    (
        "START TRANSACTION",
        "START TRANSACTION [ISOLATION LEVEL READ COMMITTED] [READ ONLY | READ WRITE];",
    ),
    ("COMMIT", "COMMIT;"),
    ("END", "END;"),
    ("ROLLBACK", "ROLLBACK;"),
    ("ABORT", "ABORT;"),
    (
        "PREPARE",
        "PREPARE name [(type, …)] AS SELECT … | INSERT … | UPDATE … | DELETE …;",
    ),
    ("EXECUTE", "EXECUTE name [(expression, …)];"),
    ("DEALLOCATE", "DEALLOCATE name | ALL;"),
    ("DISCARD", "DISCARD ALL | PLANS | SEQUENCES | TEMP;"),
    ("UNLISTEN", "UNLISTEN * | channel;"),
    (
        "DECLARE",
        "DECLARE name CURSOR [WITH HOLD] FOR query | SUBSCRIBE …;",
    ),
    ("FETCH", "FETCH [n | ALL] FROM cursor [WITH (timeout = '1s')];"),
    ("CLOSE", "CLOSE cursor | ALL;"),
    ("CREATE USER", "CREATE USER name PASSWORD '…';"),
    ("ALTER USER", "ALTER USER name PASSWORD '…';"),
    ("DROP USER", "DROP USER [IF EXISTS] name [, …];"),
];

/// `\h [STATEMENT]`
pub(super) fn statements(asked: &str) -> String {
    let asked = asked.trim().trim_end_matches(';').to_uppercase();
    let found: Vec<_> = STATEMENTS
        .iter()
        .filter(|(name, _)| !asked.is_empty() && name.starts_with(&asked))
        .collect();
    if !found.is_empty() {
        return found
            .iter()
            .map(|(_, syntax)| *syntax)
            .collect::<Vec<_>>()
            .join("\n\n");
    }
    let names: Vec<&str> = STATEMENTS.iter().map(|(name, _)| *name).collect();
    let lead = if asked.is_empty() {
        String::new()
    } else {
        format!("There is no help for {asked}. ")
    };
    format!(
        "{lead}\\h STATEMENT shows the syntax of:\n  {}",
        names.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse::starts;

    #[test]
    fn each_word_that_begins_a_statement_has_help() {
        for start in starts() {
            let shown = statements(start);
            assert!(!shown.starts_with("There is no help"), "{start}");
        }
        assert!(statements("copy").starts_with("COPY table"));
        assert!(statements("create function;").contains("RETURNS type"));
    }
}
