//! What statements give and take, as messages.

use arrow::datatypes::Schema;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{FieldDescription, NoData, ParameterDescription, RowDescription};

use super::encode::Format;
use super::types::wire_type_of;

/// The columns of a result; no columns where a statement gives no rows.
pub(super) fn rows(schema: Option<&Schema>, formats: &[Format]) -> PgWireBackendMessage {
    let Some(schema) = schema else {
        return PgWireBackendMessage::NoData(NoData::new());
    };
    let formats = formats.iter().copied().chain(std::iter::repeat(Format::Text));
    let fields = schema.fields().iter().zip(formats);
    let fields = fields.map(|(field, format)| {
        let wire = wire_type_of(field);
        FieldDescription::new(
            field.name().replace('\0', ""),
            0,
            0,
            wire.oid,
            wire.size,
            wire.modifier,
            format.code(),
        )
    });
    PgWireBackendMessage::RowDescription(RowDescription::new(fields.collect()))
}

/// The types of a statement's parameters.
pub(super) fn parameters(oids: &[u32]) -> PgWireBackendMessage {
    PgWireBackendMessage::ParameterDescription(ParameterDescription::new(oids.to_vec()))
}
