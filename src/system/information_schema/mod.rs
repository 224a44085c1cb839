//! Rows of the views of `information_schema`. A view that has none here is there and empty.

use highwater_sql::catalog::{FunctionDef, ObjectBody};
use highwater_sql::plan::sql_type_name;

use super::pg_catalog::{DATABASE_NAME, Facts, OWNER_NAME, Relation, Row, row, type_of};

/// The rows of a view.
pub(super) fn rows(name: &str, facts: &Facts) -> Vec<Row> {
    match name {
        "applicable_roles" | "enabled_roles" => enabled_roles(facts),
        "character_sets" => vec![row! {
            "character_set_name" => "UTF8",
            "character_repertoire" => "UCS",
            "form_of_use" => "UTF8",
            "default_collate_catalog" => DATABASE_NAME,
        }],
        "columns" => columns(facts),
        "constraint_column_usage" => constraint_column_usage(facts),
        "foreign_tables" => foreign_tables(facts),
        "information_schema_catalog_name" => vec![row! { "catalog_name" => DATABASE_NAME }],
        "key_column_usage" => key_column_usage(facts),
        "parameters" => parameters(facts),
        "routines" => routines(facts),
        "schemata" => schemata(),
        "table_constraints" => table_constraints(facts),
        "tables" => tables(facts),
        "view_table_usage" => view_table_usage(facts),
        "views" => views(facts),
        _ => Vec::new(),
    }
}

fn enabled_roles(facts: &Facts) -> Vec<Row> {
    let rows = facts
        .roles()
        .map(|(name, _)| row! { "role_name" => name, "grantee" => name, "is_grantable" => "NO" });
    rows.collect()
}

fn schemata() -> Vec<Row> {
    let schemas = super::pg_catalog::NAMESPACES.iter().map(|(name, _)| {
        row! { "catalog_name" => DATABASE_NAME, "schema_name" => *name, "schema_owner" => OWNER_NAME }
    });
    schemas.collect()
}

/// Materialized views stand with the others: the standard has none, and who looks for tables looks here.
fn tables(facts: &Facts) -> Vec<Row> {
    let rows = facts.relations().iter().map(|relation| {
        row! {
            "table_catalog" => DATABASE_NAME,
            "table_schema" => relation.schema,
            "table_name" => &relation.name,
            "table_type" => match relation.kind {
                "r" => "BASE TABLE",
                "f" => "FOREIGN",
                _ => "VIEW",
            },
            "is_insertable_into" => yes(is_changed_by_users(relation)),
            "is_typed" => "NO",
        }
    });
    rows.collect()
}

fn yes(holds: bool) -> &'static str {
    if holds { "YES" } else { "NO" }
}

fn is_changed_by_users(relation: &Relation) -> bool {
    relation.kind == "r" && relation.object.is_some()
}

fn columns(facts: &Facts) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in facts.relations() {
        for (place, column) in relation.columns.iter().enumerate() {
            let known = type_of(column.type_oid);
            let written = known.map_or("unknown", |known| known.written);
            let name = known.map_or("unknown", |known| known.name);
            let is_array = written.ends_with("[]");
            let (precision, radix, scale) = digits(name, column.modifier);
            let is_text = matches!(name, "varchar" | "text" | "bpchar");
            let default = column.expression.as_ref().filter(|_| !column.is_generated);
            rows.push(row! {
                "table_catalog" => DATABASE_NAME,
                "table_schema" => relation.schema,
                "table_name" => &relation.name,
                "column_name" => &column.name,
                "ordinal_position" => place + 1,
                "column_default" => default,
                "is_nullable" => yes(!column.not_null),
                "data_type" => if is_array { "ARRAY" } else { written },
                "character_octet_length" => is_text.then_some(1_073_741_824_i64),
                "numeric_precision" => precision,
                "numeric_precision_radix" => radix,
                "numeric_scale" => scale,
                "datetime_precision" => match name {
                    "date" => Some(0_i64),
                    "time" | "timestamp" | "timestamptz" | "interval" => Some(6),
                    _ => None,
                },
                "udt_catalog" => DATABASE_NAME,
                "udt_schema" => "pg_catalog",
                "udt_name" => name,
                "dtd_identifier" => (place + 1).to_string(),
                "is_self_referencing" => "NO",
                "is_identity" => "NO",
                "identity_cycle" => "NO",
                "is_generated" => if column.is_generated { "ALWAYS" } else { "NEVER" },
                "generation_expression" => column.expression.as_ref().filter(|_| column.is_generated),
                "is_updatable" => yes(is_changed_by_users(relation)),
            });
        }
    }
    rows
}

/// Precision, radix and scale of a type of numbers.
fn digits(name: &str, modifier: i64) -> (Option<i64>, Option<i64>, Option<i64>) {
    match name {
        "int2" => (Some(16), Some(2), Some(0)),
        "int4" => (Some(32), Some(2), Some(0)),
        "int8" => (Some(64), Some(2), Some(0)),
        "float4" => (Some(24), Some(2), None),
        "float8" => (Some(53), Some(2), None),
        "numeric" if modifier >= 4 => {
            let both = modifier - 4;
            (Some((both >> 16) & 0xffff), Some(10), Some(both & 0x7ff))
        }
        "numeric" => (None, Some(10), None),
        _ => (None, None, None),
    }
}

fn key_row(relation: &Relation) -> Row {
    row! {
        "constraint_catalog" => DATABASE_NAME,
        "constraint_schema" => relation.schema,
        "constraint_name" => relation.key_name(),
        "table_catalog" => DATABASE_NAME,
        "table_schema" => relation.schema,
        "table_name" => &relation.name,
    }
}

fn table_constraints(facts: &Facts) -> Vec<Row> {
    let rows = facts.keyed().map(|relation| {
        let mut row = key_row(relation);
        row.extend(row! {
            "constraint_type" => "PRIMARY KEY",
            "is_deferrable" => "NO",
            "initially_deferred" => "NO",
            "enforced" => "YES",
        });
        row
    });
    rows.collect()
}

fn key_column_usage(facts: &Facts) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in facts.keyed() {
        for (place, at) in relation.key.iter().enumerate() {
            let mut row = key_row(relation);
            row.extend(row! {
                "column_name" => &relation.columns[*at].name,
                "ordinal_position" => place + 1,
            });
            rows.push(row);
        }
    }
    rows
}

fn constraint_column_usage(facts: &Facts) -> Vec<Row> {
    let mut rows = key_column_usage(facts);
    for row in &mut rows {
        row.retain(|(name, _)| *name != "ordinal_position");
    }
    rows
}

fn views(facts: &Facts) -> Vec<Row> {
    let views = facts
        .relations()
        .iter()
        .filter(|relation| matches!(relation.kind, "v" | "m"));
    let rows = views.map(|relation| {
        row! {
            "table_catalog" => DATABASE_NAME,
            "table_schema" => relation.schema,
            "table_name" => &relation.name,
            "view_definition" => relation.query(),
            "check_option" => "NONE",
            "is_updatable" => "NO",
            "is_insertable_into" => "NO",
            "is_trigger_updatable" => "NO",
            "is_trigger_deletable" => "NO",
            "is_trigger_insertable_into" => "NO",
        }
    });
    rows.collect()
}

fn view_table_usage(facts: &Facts) -> Vec<Row> {
    let mut rows = Vec::new();
    for (relation, object) in facts
        .own()
        .filter(|(relation, _)| matches!(relation.kind, "v" | "m"))
    {
        for below in &object.depends_on {
            rows.push(row! {
                "view_catalog" => DATABASE_NAME,
                "view_schema" => relation.schema,
                "view_name" => &relation.name,
                "table_catalog" => DATABASE_NAME,
                "table_schema" => "public",
                "table_name" => below,
            });
        }
    }
    rows
}

fn foreign_tables(facts: &Facts) -> Vec<Row> {
    let rows = facts.own().filter_map(|(relation, _)| {
        Some(row! {
            "foreign_table_catalog" => DATABASE_NAME,
            "foreign_table_schema" => relation.schema,
            "foreign_table_name" => &relation.name,
            "foreign_server_catalog" => DATABASE_NAME,
            "foreign_server_name" => relation.server()?,
        })
    });
    rows.collect()
}

/// The functions that users have made: the name of one with its types is its specific name.
fn each_function(facts: &Facts) -> impl Iterator<Item = (&str, &FunctionDef)> {
    facts.functions().filter_map(|object| match &object.body {
        ObjectBody::Function(def) => Some((object.name.as_str(), def)),
        _ => None,
    })
}

fn routines(facts: &Facts) -> Vec<Row> {
    let rows = each_function(facts).map(|(name, def)| {
        row! {
            "specific_catalog" => DATABASE_NAME,
            "specific_schema" => "public",
            "specific_name" => name,
            "routine_catalog" => DATABASE_NAME,
            "routine_schema" => "public",
            "routine_name" => name.split('(').next().unwrap_or_default(),
            "routine_type" => "FUNCTION",
            "data_type" => sql_type_name(&def.returns),
            "routine_body" => "SQL",
            "routine_definition" => &def.body,
            "external_language" => "SQL",
            "is_deterministic" => "YES",
            "security_type" => "INVOKER",
        }
    });
    rows.collect()
}

fn parameters(facts: &Facts) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, def) in each_function(facts) {
        for (place, (argument, data_type)) in def.arguments.iter().enumerate() {
            rows.push(row! {
                "specific_catalog" => DATABASE_NAME,
                "specific_schema" => "public",
                "specific_name" => name,
                "ordinal_position" => place + 1,
                "parameter_mode" => "IN",
                "is_result" => "NO",
                "parameter_name" => argument.as_ref(),
                "data_type" => sql_type_name(data_type),
            });
        }
    }
    rows
}
