//! Rows of the tables that tell of relations: tables, views, sources, sinks, their columns, keys and dependencies.

use highwater_sql::catalog::{Object, ObjectBody};
use highwater_sql::oids::{self, Numbered};

use super::facts::{Facts, IndexColumn, OWNER, OWNER_NAME, PUBLIC, Relation, type_of};
use super::shape::{Row, row};

/// The number of `pg_class`, which says of a number what it is one of.
pub(super) const PG_CLASS: i64 = 1259;
/// The number of `pg_rewrite`.
const PG_REWRITE: i64 = 2618;
/// The access methods of tables and of indexes.
const HEAP: i64 = 2;
const BTREE: i64 = 403;
/// The operator class that an index of a key is said to have.
const INT4_OPS: i64 = 1978;

pub(super) fn pg_class(facts: &Facts) -> Vec<Row> {
    let relations = facts.relations().iter().map(|relation| {
        row! {
            "oid" => relation.oid,
            "relname" => &relation.name,
            "relnamespace" => relation.namespace(),
            "relowner" => OWNER,
            "relam" => if matches!(relation.kind, "r" | "m") { HEAP } else { 0 },
            "relfilenode" => if matches!(relation.kind, "r" | "m") { relation.oid } else { 0 },
            "reltuples" => facts.sizes.count(relation).unwrap_or(-1),
            "relhasindex" => facts.indexes_of(relation).next().is_some(),
            "relpersistence" => "p",
            "relkind" => relation.kind,
            "relnatts" => relation.columns.len(),
            "relhasrules" => relation.kind == "v",
            "relispopulated" => true,
            "relreplident" => "d",
        }
    });
    let indexes = facts.indexes().iter().map(|index| {
        let relation = facts.relation_of(index);
        row! {
            "oid" => index.oid,
            "relname" => &index.name,
            "relnamespace" => relation.namespace(),
            "relowner" => OWNER,
            "relam" => BTREE,
            "relfilenode" => index.oid,
            "reltuples" => facts.sizes.count(relation).unwrap_or(-1),
            "relpersistence" => "p",
            "relkind" => "i",
            "relnatts" => index.columns.len(),
            "relispopulated" => true,
            "relreplident" => "n",
        }
    });
    relations.chain(indexes).collect()
}

fn attribute(relation: i64, place: usize, name: &str, type_oid: i64) -> Row {
    let known = type_of(type_oid);
    let field = |at: usize| {
        known
            .and_then(|own| own.fields.get(at).copied())
            .unwrap_or_default()
    };
    row! {
        "attrelid" => relation,
        "attname" => name,
        "atttypid" => type_oid,
        "attstattarget" => -1_i64,
        "attlen" => field(2).parse::<i64>().unwrap_or(-1),
        "attnum" => place + 1,
        "attndims" => i64::from(field(5) == "A"),
        "attcacheoff" => -1_i64,
        "attbyval" => field(3) == "t",
        "attalign" => field(14),
        "attstorage" => field(15),
        "attislocal" => true,
        "attcollation" => field(16).parse::<i64>().unwrap_or(0),
    }
}

pub(super) fn pg_attribute(facts: &Facts) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in facts.relations() {
        for (place, column) in relation.columns.iter().enumerate() {
            let mut row = attribute(relation.oid, place, &column.name, column.type_oid);
            row.extend(row! {
                "atttypmod" => column.modifier,
                "attnotnull" => column.not_null,
                "atthasdef" => column.expression.is_some(),
                "attgenerated" => if column.is_generated { "s" } else { "" },
            });
            rows.push(row);
        }
    }
    for index in facts.indexes() {
        let columns = &facts.relation_of(index).columns;
        for (place, own) in index.columns.iter().enumerate() {
            let column = &columns[own.place];
            let mut row = attribute(index.oid, place, &column.name, column.type_oid);
            row.extend(row! { "atttypmod" => column.modifier });
            rows.push(row);
        }
    }
    rows
}

pub(super) fn pg_attrdef(facts: &Facts) -> Vec<Row> {
    let mut rows = Vec::new();
    for (relation, _) in facts.own() {
        for (place, column) in relation.columns.iter().enumerate() {
            let Some(expression) = &column.expression else {
                continue;
            };
            rows.push(row! {
                "oid" => oids::named_oid("default", &format!("{}.{}", relation.oid, column.name)),
                "adrelid" => relation.oid,
                "adnum" => place + 1,
                "adbin" => expression,
            });
        }
    }
    rows
}

/// What `pg_index.indoption` says of a column: that great values come first, and that NULLs do.
fn index_option(column: &IndexColumn) -> i64 {
    i64::from(column.descending) | (i64::from(column.nulls_first) << 1)
}

pub(super) fn pg_index(facts: &Facts) -> Vec<Row> {
    let indexes = facts.indexes().iter().map(|index| {
        let relation = facts.relation_of(index);
        let count = index.columns.len();
        let collation = |column: &IndexColumn| {
            let own = type_of(relation.columns[column.place].type_oid);
            own.and_then(|own| own.fields.get(16)?.parse().ok()).unwrap_or(0)
        };
        let places = index.columns.iter();
        let places = places.filter_map(|column| i64::try_from(column.place + 1).ok());
        row! {
            "indexrelid" => index.oid,
            "indrelid" => relation.oid,
            "indnatts" => count,
            "indnkeyatts" => count,
            "indisunique" => index.is_primary(),
            "indisprimary" => index.is_primary(),
            "indimmediate" => true,
            "indisvalid" => true,
            "indisready" => true,
            "indislive" => true,
            "indkey" => places.collect::<Vec<i64>>(),
            "indcollation" => index.columns.iter().map(collation).collect::<Vec<i64>>(),
            "indclass" => vec![INT4_OPS; count],
            "indoption" => index.columns.iter().map(index_option).collect::<Vec<i64>>(),
        }
    });
    indexes.collect()
}

fn constraint_oid(object: &Object) -> i64 {
    oids::object_oid(object.id, Numbered::KeyConstraint)
}

pub(super) fn pg_constraint(facts: &Facts) -> Vec<Row> {
    let constraints = facts.keyed().filter_map(|relation| {
        Some(row! {
            "oid" => constraint_oid(relation.object.as_ref()?),
            "conname" => relation.key_name(),
            "connamespace" => relation.namespace(),
            "contype" => "p",
            "convalidated" => true,
            "conrelid" => relation.oid,
            "conindid" => relation.key_index()?,
            "confupdtype" => " ",
            "confdeltype" => " ",
            "confmatchtype" => " ",
            "conislocal" => true,
            "connoinherit" => true,
            "conkey" => relation.key_places(),
        })
    });
    constraints.collect()
}

pub(super) fn pg_rewrite(facts: &Facts) -> Vec<Row> {
    let views = facts
        .own()
        .filter(|(relation, _)| matches!(relation.kind, "v" | "m"));
    let rules = views.map(|(relation, object)| {
        row! {
            "oid" => oids::object_oid(object.id, Numbered::Rule),
            "rulename" => "_RETURN",
            "ev_class" => relation.oid,
            "ev_type" => "1",
            "ev_enabled" => "O",
            "is_instead" => true,
        }
    });
    rules.collect()
}

/// What views and sinks read, as PostgreSQL has it of the rules of views.
pub(super) fn pg_depend(facts: &Facts) -> Vec<Row> {
    let mut rows = Vec::new();
    for (relation, object) in facts.own() {
        for below in object
            .depends_on
            .iter()
            .filter_map(|name| facts.catalog.get(name))
        {
            if matches!(below.body, ObjectBody::Function(_)) {
                continue;
            }
            let (classid, objid) = match relation.kind {
                "v" | "m" => (PG_REWRITE, oids::object_oid(object.id, Numbered::Rule)),
                _ => (PG_CLASS, relation.oid),
            };
            rows.push(row! {
                "classid" => classid,
                "objid" => objid,
                "refclassid" => PG_CLASS,
                "refobjid" => oids::object_oid(below.id, Numbered::Object),
                "deptype" => "n",
            });
        }
    }
    // An index goes with its relation.
    for index in facts.indexes().iter().filter(|index| !index.is_primary()) {
        rows.push(row! {
            "classid" => PG_CLASS,
            "objid" => index.oid,
            "refclassid" => PG_CLASS,
            "refobjid" => facts.relation_of(index).oid,
            "deptype" => "a",
        });
    }
    rows
}

pub(super) fn pg_description(facts: &Facts) -> Vec<Row> {
    let described = facts.own().filter_map(|(relation, _)| {
        Some(row! {
            "objoid" => relation.oid,
            "classoid" => PG_CLASS,
            "description" => relation.comment()?,
        })
    });
    described.collect()
}

fn listed<'f>(facts: &'f Facts, kind: &'static str) -> impl Iterator<Item = &'f Relation> {
    facts
        .relations()
        .iter()
        .filter(move |relation| relation.kind == kind)
}

pub(super) fn pg_tables(facts: &Facts) -> Vec<Row> {
    let rows = listed(facts, "r").map(|relation| {
        row! {
            "schemaname" => relation.schema,
            "tablename" => &relation.name,
            "tableowner" => OWNER_NAME,
            "hasindexes" => facts.indexes_of(relation).next().is_some(),
            "hasrules" => false,
            "hastriggers" => false,
            "rowsecurity" => false,
        }
    });
    rows.collect()
}

pub(super) fn pg_views(facts: &Facts) -> Vec<Row> {
    let rows = listed(facts, "v").map(|relation| {
        row! {
            "schemaname" => relation.schema,
            "viewname" => &relation.name,
            "viewowner" => OWNER_NAME,
            "definition" => relation.query(),
        }
    });
    rows.collect()
}

pub(super) fn pg_matviews(facts: &Facts) -> Vec<Row> {
    let rows = listed(facts, "m").map(|relation| {
        row! {
            "schemaname" => relation.schema,
            "matviewname" => &relation.name,
            "matviewowner" => OWNER_NAME,
            "hasindexes" => facts.indexes_of(relation).next().is_some(),
            "ispopulated" => true,
            "definition" => relation.query(),
        }
    });
    rows.collect()
}

pub(super) fn pg_indexes(facts: &Facts) -> Vec<Row> {
    let rows = facts.indexes().iter().map(|index| {
        let relation = facts.relation_of(index);
        row! {
            "schemaname" => relation.schema,
            "tablename" => &relation.name,
            "indexname" => &index.name,
            "indexdef" => index.definition(relation),
        }
    });
    rows.collect()
}

pub(super) fn pg_stat_tables(facts: &Facts) -> Vec<Row> {
    let tables = facts
        .own()
        .filter(|(relation, _)| matches!(relation.kind, "r" | "m"));
    let rows = tables.map(|(relation, _)| {
        row! {
            "relid" => relation.oid,
            "schemaname" => relation.schema,
            "relname" => &relation.name,
            "n_live_tup" => facts.sizes.count(relation),
        }
    });
    rows.collect()
}

/// The wrapper under which all connectors stand.
const WRAPPER: &str = "highwater";

fn server_oid(connector: &str) -> i64 {
    oids::named_oid("server", connector)
}

pub(super) fn pg_foreign_data_wrapper(_facts: &Facts) -> Vec<Row> {
    vec![row! {
        "oid" => oids::named_oid("wrapper", WRAPPER),
        "fdwname" => WRAPPER,
        "fdwowner" => OWNER,
    }]
}

pub(super) fn pg_foreign_server(facts: &Facts) -> Vec<Row> {
    let mut names: Vec<String> = facts
        .own()
        .filter_map(|(relation, _)| relation.server())
        .collect();
    names.sort_unstable();
    names.dedup();
    let rows = names.into_iter().map(|name| {
        row! {
            "oid" => server_oid(&name),
            "srvname" => name,
            "srvowner" => OWNER,
            "srvfdw" => oids::named_oid("wrapper", WRAPPER),
        }
    });
    rows.collect()
}

pub(super) fn pg_foreign_table(facts: &Facts) -> Vec<Row> {
    let rows = facts.own().filter_map(|(relation, _)| {
        let server = relation.server()?;
        Some(row! { "ftrelid" => relation.oid, "ftserver" => server_oid(&server) })
    });
    rows.collect()
}

/// Functions that users have made, and those that read and write the types.
pub(super) fn pg_proc(facts: &Facts) -> Vec<Row> {
    let own = facts.functions().filter_map(|object| {
        let ObjectBody::Function(def) = &object.body else {
            return None;
        };
        let number = |data_type| i64::from(oids::wire_type(data_type).oid);
        let types: Vec<i64> = def
            .arguments
            .iter()
            .map(|(_, data_type)| number(data_type))
            .collect();
        let names = def
            .arguments
            .iter()
            .map(|(name, _)| name.clone().unwrap_or_default());
        let names: Vec<String> = names.collect();
        let is_named = names.iter().any(|name| !name.is_empty());
        Some(row! {
            "oid" => oids::object_oid(object.id, Numbered::Object),
            "proname" => object.name.split('(').next().unwrap_or_default(),
            "pronamespace" => PUBLIC,
            "proowner" => OWNER,
            "prolang" => 14_i64,
            "procost" => 100_i64,
            "prokind" => "f",
            "proisstrict" => def.is_strict,
            "provolatile" => "i",
            "proparallel" => "s",
            "pronargs" => types.len(),
            "prorettype" => number(&def.returns),
            "proargtypes" => types,
            "proargnames" => is_named.then_some(names),
            "prosrc" => &def.body,
        })
    });
    let lines = include_str!("procs.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let built_in = lines.filter_map(|line| {
        let mut fields = line.split('\t');
        let oid = fields.next()?.parse::<i64>().ok()?;
        let name = fields.next()?;
        Some(row! {
            "oid" => oid,
            "proname" => name,
            "pronamespace" => 11_i64,
            "proowner" => OWNER,
            "prolang" => 12_i64,
            "procost" => 1_i64,
            "prokind" => "f",
            "proisstrict" => true,
            "provolatile" => "i",
            "proparallel" => "s",
            "pronargs" => 1_i64,
            "prorettype" => fields.next()?.parse::<i64>().ok()?,
            "prosrc" => name,
        })
    });
    own.chain(built_in).collect()
}
