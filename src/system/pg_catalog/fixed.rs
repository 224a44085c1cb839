//! Rows of the tables that tell of what every database has: types, schemas, roles, settings, languages.

use super::facts::{DATABASE, DATABASE_NAME, Facts, NAMESPACES, OWNER, TYPES};
use super::shape::{Cell, Row, row};

/// The columns of `pg_type` in the order of the list of types; the last of the list is none of them.
const TYPE_COLUMNS: [&str; 18] = [
    "typname",
    "oid",
    "typlen",
    "typbyval",
    "typtype",
    "typcategory",
    "typispreferred",
    "typdelim",
    "typelem",
    "typarray",
    "typinput",
    "typoutput",
    "typreceive",
    "typsend",
    "typalign",
    "typstorage",
    "typcollation",
    "typsubscript",
];

pub(super) fn pg_type(_facts: &Facts) -> Vec<Row> {
    let rows = TYPES.iter().map(|own| {
        let columns = TYPE_COLUMNS.iter().zip(&own.fields).map(|(name, text)| {
            let cell = match *name {
                "typname" | "typtype" | "typcategory" | "typdelim" | "typalign" | "typstorage" => {
                    Cell::from(*text)
                }
                "typbyval" | "typispreferred" => Cell::Bool(*text == "t"),
                _ => text.parse().map_or(Cell::Null, Cell::Int),
            };
            (*name, cell)
        });
        let rest = row! {
            "typnamespace" => 11_i64,
            "typowner" => OWNER,
            "typisdefined" => true,
            "typtypmod" => -1_i64,
        };
        columns.chain(rest).collect()
    });
    rows.collect()
}

pub(super) fn pg_namespace(_facts: &Facts) -> Vec<Row> {
    let rows = NAMESPACES
        .iter()
        .map(|(name, oid)| row! { "oid" => *oid, "nspname" => *name, "nspowner" => OWNER });
    rows.collect()
}

pub(super) fn pg_database(_facts: &Facts) -> Vec<Row> {
    vec![row! {
        "oid" => DATABASE,
        "datname" => DATABASE_NAME,
        "datdba" => OWNER,
        "encoding" => 6_i64,
        "datlocprovider" => "c",
        "datallowconn" => true,
        "datconnlimit" => -1_i64,
        "datfrozenxid" => 1_i64,
        "dattablespace" => 1663_i64,
        "datcollate" => "C",
        "datctype" => "C",
    }]
}

/// `pg_roles`, `pg_authid`, `pg_user` and `pg_shadow` in one: each has some of the columns. Everybody may do everything.
pub(super) fn roles(facts: &Facts) -> Vec<Row> {
    let rows = facts.roles().map(|(name, oid)| {
        row! {
            "oid" => oid,
            "rolname" => name,
            "rolsuper" => true,
            "rolinherit" => true,
            "rolcreaterole" => true,
            "rolcreatedb" => false,
            "rolcanlogin" => true,
            "rolreplication" => false,
            "rolbypassrls" => true,
            "rolconnlimit" => -1_i64,
            "rolpassword" => "********",
            "usename" => name,
            "usesysid" => oid,
            "usecreatedb" => false,
            "usesuper" => true,
            "userepl" => false,
            "usebypassrls" => true,
            "passwd" => "********",
        }
    });
    rows.collect()
}

pub(super) fn pg_settings(facts: &Facts) -> Vec<Row> {
    let rows = facts.settings.iter().map(|(name, value)| {
        row! {
            "name" => name,
            "setting" => value,
            "category" => "Highwater",
            "short_desc" => "",
            "context" => "user",
            "vartype" => "string",
            "source" => "default",
            "boot_val" => value,
            "reset_val" => value,
            "pending_restart" => false,
        }
    });
    rows.collect()
}

pub(super) fn pg_am(_facts: &Facts) -> Vec<Row> {
    vec![
        row! { "oid" => 2_i64, "amname" => "heap", "amhandler" => 3_i64, "amtype" => "t" },
        row! { "oid" => 403_i64, "amname" => "btree", "amhandler" => 330_i64, "amtype" => "i" },
    ]
}

pub(super) fn pg_language(_facts: &Facts) -> Vec<Row> {
    vec![
        row! { "oid" => 12_i64, "lanname" => "internal", "lanowner" => OWNER },
        row! { "oid" => 14_i64, "lanname" => "sql", "lanowner" => OWNER, "lanpltrusted" => true },
    ]
}

pub(super) fn pg_opclass(_facts: &Facts) -> Vec<Row> {
    vec![row! {
        "oid" => 1978_i64,
        "opcmethod" => 403_i64,
        "opcname" => "int4_ops",
        "opcnamespace" => 11_i64,
        "opcowner" => OWNER,
        "opcfamily" => 1976_i64,
        "opcintype" => 23_i64,
        "opcdefault" => true,
    }]
}

/// The family of that operator class.
pub(super) fn pg_opfamily(_facts: &Facts) -> Vec<Row> {
    vec![row! {
        "oid" => 1976_i64,
        "opfmethod" => 403_i64,
        "opfname" => "integer_ops",
        "opfnamespace" => 11_i64,
        "opfowner" => OWNER,
    }]
}

pub(super) fn pg_collation(_facts: &Facts) -> Vec<Row> {
    let collation = |oid: i64, name: &str, provider: &str| {
        row! {
            "oid" => oid,
            "collname" => name,
            "collnamespace" => 11_i64,
            "collowner" => OWNER,
            "collprovider" => provider,
            "collisdeterministic" => true,
            "collencoding" => -1_i64,
            "collcollate" => (provider == "c").then_some(name),
            "collctype" => (provider == "c").then_some(name),
        }
    };
    vec![
        collation(100, "default", "d"),
        collation(950, "C", "c"),
        collation(951, "POSIX", "c"),
    ]
}

pub(super) fn pg_tablespace(_facts: &Facts) -> Vec<Row> {
    vec![
        row! { "oid" => 1663_i64, "spcname" => "pg_default", "spcowner" => OWNER },
        row! { "oid" => 1664_i64, "spcname" => "pg_global", "spcowner" => OWNER },
    ]
}

/// The connection that asks, as far as it is known here.
pub(super) fn pg_stat_activity(_facts: &Facts) -> Vec<Row> {
    vec![row! {
        "datid" => DATABASE,
        "datname" => DATABASE_NAME,
        "pid" => i64::from(std::process::id()),
        "usesysid" => OWNER,
        "usename" => super::facts::OWNER_NAME,
        "application_name" => "",
        "state" => "active",
        "query" => "",
        "backend_type" => "client backend",
    }]
}

pub(super) fn pg_timezone_names(_facts: &Facts) -> Vec<Row> {
    vec![row! { "name" => "UTC", "abbrev" => "UTC", "is_dst" => false }]
}
