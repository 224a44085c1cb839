//! What queries of the system catalogs spell otherwise: names with the schema `pg_catalog`, types that only catalogs have,
//! `OPERATOR(…)`, `COLLATE`, `ARRAY(SELECT …)`.
//!
//! ```text
//! pg_catalog.format_type(…)          format_type(…)
//! a OPERATOR(pg_catalog.~) b         a ~ b
//! 'pg_class'::regclass               regclass('pg_class'), a number
//! oid::regclass::text                regclassout(oid); so too where oid::regclass is a column of a SELECT
//! ARRAY(SELECT x … ORDER BY y)       the elements of (SELECT array_agg(x ORDER BY y) …), none where that is NULL
//! (_pg_expandarray(a)).n             generate_subscripts(a, 1)
//! current_setting(name)              (SELECT setting FROM pg_settings …)
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, ArrayElemTypeDef, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Spanned, TableFactor,
};

use crate::SqlError;
use crate::calls::call;
use crate::parse::parse_query;
use crate::plan::collected;
use crate::plan::functions::OR_EMPTY;
use crate::plan::place::position_of;
use crate::plan::spelled::plain_args;
use crate::plan::types::folded;
use crate::plan::walk::{PartMut, walk_mut};

/// Schemas that may stand before the names of functions and types.
const SCHEMAS: [&str; 2] = ["pg_catalog", "information_schema"];

/// Types whose values are numbers of objects and that read and write names.
const REGISTERED: [&str; 11] = [
    "regclass",
    "regcollation",
    "regconfig",
    "regdictionary",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
];

/// Types that are numbers.
const NUMBERS: [&str; 4] = ["oid", "xid", "xid8", "cid"];

/// Types that are texts.
const TEXTS: [&str; 14] = [
    "name",
    "cstring",
    "unknown",
    "bpchar",
    "pg_node_tree",
    "pg_lsn",
    "inet",
    "cidr",
    "aclitem",
    "tid",
    "sql_identifier",
    "character_data",
    "yes_or_no",
    "refcursor",
];

/// The function that reads or writes names of a registered type.
const WRITER: &str = "out";

/// Rewrites what is spelt otherwise; `ARRAY(SELECT …)` only `with_arrays`.
///
/// # Errors
/// What no query can have.
pub(crate) fn in_our_words(query: &mut Query, with_arrays: bool) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        let changed = match part {
            PartMut::Select(select) => {
                qualified_wildcards(select);
                written_columns(select);
                Ok(())
            }
            PartMut::TableFactor(factor) => table_factor(factor),
            PartMut::Expr(expr) => expression(expr, with_arrays),
            PartMut::Query(_) | PartMut::QueryEnd(_) => Ok(()),
        };
        match changed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    })
}

fn table_factor(factor: &mut TableFactor) -> Result<(), SqlError> {
    let (name, args, alias) = match factor {
        TableFactor::Table {
            name,
            args: Some(args),
            alias,
            ..
        } => (name, args.args.as_slice(), alias.clone()),
        TableFactor::Function {
            name, args, alias, ..
        } => (name, args.as_slice(), alias.clone()),
        _ => return Ok(()),
    };
    without_schema(name);
    let query = match (name.to_string().to_lowercase().as_str(), args) {
        ("pg_get_keywords", []) => keywords()?,
        ("pg_options_to_table", [FunctionArg::Unnamed(FunctionArgExpr::Expr(options))]) => {
            option_rows(options)?
        }
        _ => return Ok(()),
    };
    *factor = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query),
        alias,
        sample: None,
    };
    Ok(())
}

/// `pg_options_to_table(options)`: a row for each `name=value`.
fn option_rows(options: &Expr) -> Result<Query, SqlError> {
    let columns = "split_part(o, '=', 1) AS option_name, substr(o, strpos(o, '=') + 1) AS option_value";
    let mut query = parse_query(&format!(
        "SELECT {columns} FROM unnest(NULL::text[]) AS options (o)"
    ))?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(TableFactor::UNNEST { array_exprs, .. }) =
            select.from.first_mut().map(|from| &mut from.relation)
    {
        *array_exprs = vec![options.clone()];
    }
    Ok(*query)
}

fn expression(expr: &mut Expr, with_arrays: bool) -> Result<(), SqlError> {
    match expr {
        Expr::BinaryOp { op, .. } => {
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                && let Some(known) = parts.last().and_then(|own| operator(own))
            {
                *op = known;
            }
        }
        Expr::Collate {
            expr: inner,
            collation,
        } if is_by_bytes(collation) => {
            let inner = inner.as_ref().clone();
            *expr = inner;
            return expression(expr, with_arrays);
        }
        Expr::Collate { collation, .. } => {
            let error = SqlError::unsupported(format!("COLLATE {collation}"))
                .with_hint("Texts are compared by their code points: COLLATE \"C\" is the only collation.");
            return Err(match position_of(collation.span()) {
                Some(position) => error.at(position),
                None => error,
            });
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            if let Some(replaced) = field_of_expanded(root, access_chain) {
                *expr = replaced;
            }
        }
        Expr::Function(function) => {
            without_schema(&mut function.name);
            if let Some(replaced) = function_call(function, with_arrays)? {
                *expr = replaced;
            }
        }
        Expr::Cast { .. } => {
            if let Some(replaced) = cast(expr) {
                *expr = replaced;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The operator of a name.
fn operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        "@>" => BinaryOperator::AtArrow,
        "<@" => BinaryOperator::ArrowAt,
        "&&" => BinaryOperator::PGOverlap,
        _ => return None,
    })
}

/// Whether a collation orders texts as we do, by their bytes.
fn is_by_bytes(collation: &ObjectName) -> bool {
    let name = collation.0.last().and_then(ObjectNamePart::as_ident).map(folded);
    name.is_some_and(|name| ["default", "C", "c", "POSIX", "ucs_basic"].contains(&name.as_str()))
}

/// Takes the schema of the catalogs off the name of a function.
fn without_schema(name: &mut ObjectName) {
    if let [schema, _] = name.0.as_slice()
        && schema
            .as_ident()
            .is_some_and(|schema| SCHEMAS.contains(&folded(schema).as_str()))
    {
        name.0.remove(0);
    }
}

/// The folded name of a type without its schema; quoted names stay as they are.
fn type_name(name: &ObjectName) -> Option<String> {
    let mut name = name.clone();
    without_schema(&mut name);
    match name.0.as_slice() {
        [own] => own.as_ident().map(|own| match own.quote_style {
            Some(_) => format!("\"{}\"", own.value),
            None => own.value.to_lowercase(),
        }),
        _ => None,
    }
}

/// The registered type that is meant, if it is one.
fn registered(data_type: &ast::DataType) -> Option<&'static str> {
    let name = match data_type {
        ast::DataType::Regclass => "regclass".to_owned(),
        ast::DataType::Custom(name, arguments) if arguments.is_empty() => type_name(name)?,
        _ => return None,
    };
    REGISTERED
        .into_iter()
        .find(|known| *known == name.trim_matches('"'))
}

/// What stands for a type that only catalogs have.
fn plain_type(data_type: &ast::DataType) -> Option<ast::DataType> {
    use ast::DataType as Sql;
    let array = |item: Sql| Sql::Array(ArrayElemTypeDef::SquareBracket(Box::new(item), None));
    if registered(data_type).is_some() {
        return Some(Sql::BigInt(None));
    }
    match data_type {
        Sql::Array(ArrayElemTypeDef::SquareBracket(item, None)) => plain_type(item).map(array),
        Sql::Custom(name, arguments) if arguments.is_empty() => {
            let name = type_name(name)?;
            match name.as_str() {
                "\"char\"" => return Some(Sql::Text),
                "cardinal_number" => return Some(Sql::Int(None)),
                "int2vector" => return Some(array(Sql::SmallInt(None))),
                "oidvector" => return Some(array(Sql::BigInt(None))),
                _ => {}
            }
            let name = name.trim_matches('"');
            if NUMBERS.contains(&name) {
                return Some(Sql::BigInt(None));
            }
            if TEXTS.contains(&name) {
                return Some(Sql::Text);
            }
            // The names of array types in pg_type begin with an underscore.
            let item = crate::parse::parse_data_type(name.strip_prefix('_')?).ok()?;
            Some(array(plain_type(&item).unwrap_or(item)))
        }
        _ => None,
    }
}

fn is_text(data_type: &ast::DataType) -> bool {
    matches!(
        plain_type(data_type).as_ref().unwrap_or(data_type),
        ast::DataType::Text | ast::DataType::Varchar(None) | ast::DataType::CharacterVarying(None)
    ) || matches!(data_type, ast::DataType::Custom(name, _) if type_name(name).is_some_and(|name| ["text", "varchar"].contains(&name.as_str())))
}

/// What stands for a cast that has to do with a type of the catalogs.
fn cast(expr: &Expr) -> Option<Expr> {
    let Expr::Cast {
        kind,
        expr: inner,
        data_type,
        array,
        format,
    } = expr
    else {
        return None;
    };
    if let Some(name) = registered(data_type) {
        return Some(call(name, vec![inner.as_ref().clone()]));
    }
    if is_text(data_type)
        && let Some((name, number)) = registered_cast(inner)
    {
        return Some(call(format!("{name}{WRITER}").as_str(), vec![number.clone()]));
    }
    plain_type(data_type).map(|data_type| Expr::Cast {
        kind: kind.clone(),
        expr: inner.clone(),
        data_type,
        array: *array,
        format: format.clone(),
    })
}

/// The registered type to which an expression is cast, and what is cast.
fn registered_cast(expr: &Expr) -> Option<(&'static str, &Expr)> {
    match expr {
        Expr::Nested(inner) => registered_cast(inner),
        Expr::Cast { expr, data_type, .. } => registered(data_type).map(|name| (name, expr.as_ref())),
        _ => None,
    }
}

/// `columns.*` means the relation `information_schema.columns` where that is in FROM without another name.
fn qualified_wildcards(select: &mut Select) {
    let named = select.from.iter().flat_map(|from| {
        let joined = from.joins.iter().map(|join| &join.relation);
        std::iter::once(&from.relation).chain(joined)
    });
    let named: Vec<ObjectName> = named
        .filter_map(|factor| match factor {
            TableFactor::Table {
                name, alias: None, ..
            } if name.0.len() == 2 => Some(name.clone()),
            _ => None,
        })
        .collect();
    for item in &mut select.projection {
        if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(wanted), _) = item
            && let [own] = wanted.0.as_slice()
            && let Some(name) = named
                .iter()
                .find(|name| last_of(name) == own.as_ident().map(folded))
        {
            *wanted = name.clone();
        }
    }
}

fn last_of(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(ObjectNamePart::as_ident).map(folded)
}

/// `pg_get_keywords()`, of which there are none to tell.
fn keywords() -> Result<Query, SqlError> {
    let columns = "SELECT ''::text AS word, ''::text AS catcode, true AS barelabel, ''::text AS catdesc, ''::text AS baredesc";
    parse_query(&format!("{columns} WHERE false")).map(|query| *query)
}

/// Columns of a registered type are written as names.
fn written_columns(select: &mut Select) {
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = &*item else {
            continue;
        };
        let expanded = match expr {
            Expr::Function(function) => expanded_array(function),
            _ => None,
        };
        let written = match (registered_cast(expr), expanded) {
            (Some((name, number)), _) => call(format!("{name}{WRITER}").as_str(), vec![number.clone()]),
            (None, Some(array)) => call("unnest", vec![call("_pg_expandarray", vec![array])]),
            (None, None) => continue,
        };
        let alias = match &*item {
            SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
            _ => match expr {
                Expr::Cast { expr, .. } => Ident::new(name_of(expr).unwrap_or_else(|| "name".to_owned())),
                _ => Ident::new("_pg_expandarray"),
            },
        };
        *item = SelectItem::ExprWithAlias { expr: written, alias };
    }
}

fn name_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::CompoundIdentifier(parts) => parts.last().map(folded),
        _ => None,
    }
}

/// The argument of `_pg_expandarray`.
fn expanded_array(function: &Function) -> Option<Expr> {
    let mut name = function.name.clone();
    without_schema(&mut name);
    let is_it = name.to_string().eq_ignore_ascii_case("_pg_expandarray");
    match plain_args(function).as_slice() {
        [array] if is_it => Some(array.clone()),
        _ => None,
    }
}

/// `(_pg_expandarray(a)).x` and `.n`
fn field_of_expanded(root: &Expr, chain: &[AccessExpr]) -> Option<Expr> {
    let function = match root {
        Expr::Nested(inner) => match inner.as_ref() {
            Expr::Function(function) => function,
            _ => return None,
        },
        Expr::Function(function) => function,
        _ => return None,
    };
    let array = expanded_array(function)?;
    match chain {
        [AccessExpr::Dot(Expr::Identifier(field))] => match folded(field).as_str() {
            "x" => Some(call("unnest", vec![array])),
            "n" => Some(call(
                "generate_subscripts",
                vec![array, crate::plan::spelled::number("1")],
            )),
            _ => None,
        },
        _ => None,
    }
}

fn function_call(function: &Function, with_arrays: bool) -> Result<Option<Expr>, SqlError> {
    let name = function.name.to_string().to_lowercase();
    match (name.as_str(), &function.args) {
        ("array", FunctionArguments::Subquery(query)) if with_arrays => array_of(query).map(Some),
        ("current_setting", _) => match plain_args(function).as_slice() {
            [name] | [name, _] => setting(name).map(Some),
            _ => Ok(None),
        },
        // The age of a row's transaction, and not of a time.
        ("age", _) => Ok(match plain_args(function).as_slice() {
            [one]
                if name_of(one).is_some_and(|name| name.ends_with("xmin") || name.ends_with("frozenxid")) =>
            {
                Some(call("xid_age", vec![one.clone()]))
            }
            _ => None,
        }),
        _ => Ok(None),
    }
}

/// `current_setting(name)`
fn setting(name: &Expr) -> Result<Expr, SqlError> {
    let mut query = parse_query("SELECT setting FROM pg_catalog.pg_settings WHERE name = 'x'")?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(Expr::BinaryOp { right, .. }) = &mut select.selection
    {
        **right = call("lower", vec![name.clone()]);
    }
    Ok(Expr::Subquery(query))
}

/// `ARRAY(query)`
fn array_of(query: &Query) -> Result<Expr, SqlError> {
    let collected = collected::as_array(query.clone())?;
    Ok(call(OR_EMPTY, vec![Expr::Subquery(Box::new(collected))]))
}
