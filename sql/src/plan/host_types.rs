//! What functions of the program need to know of types, which is the planner's to say.

use arrow::datatypes::DataType;

use crate::host::TypeNames;
use crate::parse::parse_data_type;
use crate::plan::functions::is_built_in;
use crate::plan::types::{arrow_type, column_type, written_type};

/// The planner's answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostTypes;

impl TypeNames for HostTypes {
    fn is_taken(&self, function: &str) -> bool {
        is_built_in(function)
    }

    fn is_of_columns(&self, data_type: &DataType) -> bool {
        column_type(data_type) == *data_type
    }

    fn written(&self, data_type: &DataType) -> String {
        written_type(data_type)
    }

    fn read(&self, text: &str) -> Option<DataType> {
        parse_data_type(text).ok().and_then(|sql| arrow_type(&sql).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_columns_are_read_as_they_were_written() {
        for text in [
            "bigint",
            "numeric(12,3)",
            "character varying",
            "timestamp with time zone",
            "bigint[]",
            "interval",
        ] {
            let data_type = HostTypes.read(text).unwrap();
            assert_eq!(
                HostTypes.read(&HostTypes.written(&data_type)),
                Some(data_type),
                "{text}"
            );
        }
    }
}
