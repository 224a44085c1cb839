//! The one error of the front end: a PostgreSQL-style report with its place in the text.

use std::fmt;

/// The SQLSTATE codes that the front end reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlState {
    /// 42601
    SyntaxError,
    /// 42P01
    UndefinedTable,
    /// 42703
    UndefinedColumn,
    /// 42883
    UndefinedFunction,
    /// 42704
    UndefinedObject,
    /// 42P02
    UndefinedParameter,
    /// 42804
    DatatypeMismatch,
    /// 42P07
    DuplicateTable,
    /// 42701
    DuplicateColumn,
    /// 42712
    DuplicateAlias,
    /// 42809
    WrongObjectType,
    /// 42P18
    IndeterminateDatatype,
    /// 2BP01
    DependentObjectsStillExist,
    /// 0A000
    FeatureNotSupported,
    /// 22023
    InvalidParameterValue,
    /// 42P10
    InvalidColumnReference,
    /// 42803
    GroupingError,
    /// 42702
    AmbiguousColumn,
    /// 42P17
    InvalidObjectDefinition,
    /// 42P16
    InvalidTableDefinition,
    /// 428C9
    GeneratedAlways,
    /// 42P20
    WindowingError,
    /// 22014
    InvalidArgumentForNtile,
    /// 22016
    InvalidArgumentForNthValue,
    /// 42622
    NameTooLong,
    /// 42939
    ReservedName,
    /// 54000
    ProgramLimitExceeded,
    /// 54001
    StatementTooComplex,
    /// 22012
    DivisionByZero,
    /// 22003
    NumericValueOutOfRange,
    /// 22001
    StringDataRightTruncation,
    /// 22P02
    InvalidTextRepresentation,
    /// 22P05
    UntranslatableCharacter,
    /// 22007
    InvalidDatetimeFormat,
    /// 22008
    DatetimeFieldOverflow,
    /// 2201B
    InvalidRegularExpression,
    /// 2201F
    InvalidArgumentForPowerFunction,
    /// 2201W
    InvalidRowCountInLimit,
    /// 2201X
    InvalidRowCountInOffset,
    /// 21000
    CardinalityViolation,
    /// 22004
    NullValueNotAllowed,
    /// 22011
    SubstringError,
    /// 22025
    InvalidEscapeSequence,
    /// 22021
    CharacterNotInRepertoire,
    /// 2201E
    InvalidArgumentForLogarithm,
    /// 2201G
    InvalidArgumentForWidthBucket,
    /// 2202E
    ArraySubscriptError,
    /// 42846
    CannotCoerce,
    /// 38000
    ExternalRoutineException,
    /// 42723
    DuplicateFunction,
    /// 42725
    AmbiguousFunction,
    /// 42P13
    InvalidFunctionDefinition,
    /// 42P19
    InvalidRecursion,
    /// 22000, where no closer code of its class is known
    DataException,
    /// 53200
    OutOfMemory,
    /// 58030
    IoError,
    /// 42000, where no closer code of its class is known
    InvalidStatement,
    /// XX000
    InternalError,
}

impl SqlState {
    /// The five characters of the code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::SyntaxError => "42601",
            Self::UndefinedTable => "42P01",
            Self::UndefinedColumn => "42703",
            Self::UndefinedFunction => "42883",
            Self::UndefinedObject => "42704",
            Self::UndefinedParameter => "42P02",
            Self::DatatypeMismatch => "42804",
            Self::DuplicateTable => "42P07",
            Self::DuplicateColumn => "42701",
            Self::DuplicateAlias => "42712",
            Self::WrongObjectType => "42809",
            Self::IndeterminateDatatype => "42P18",
            Self::DependentObjectsStillExist => "2BP01",
            Self::FeatureNotSupported => "0A000",
            Self::InvalidParameterValue => "22023",
            Self::InvalidColumnReference => "42P10",
            Self::GroupingError => "42803",
            Self::AmbiguousColumn => "42702",
            Self::InvalidObjectDefinition => "42P17",
            Self::InvalidTableDefinition => "42P16",
            Self::GeneratedAlways => "428C9",
            Self::WindowingError => "42P20",
            Self::InvalidArgumentForNtile => "22014",
            Self::InvalidArgumentForNthValue => "22016",
            Self::NameTooLong => "42622",
            Self::ReservedName => "42939",
            Self::ProgramLimitExceeded => "54000",
            Self::StatementTooComplex => "54001",
            Self::DivisionByZero => "22012",
            Self::NumericValueOutOfRange => "22003",
            Self::StringDataRightTruncation => "22001",
            Self::InvalidTextRepresentation => "22P02",
            Self::UntranslatableCharacter => "22P05",
            Self::InvalidDatetimeFormat => "22007",
            Self::DatetimeFieldOverflow => "22008",
            Self::InvalidRegularExpression => "2201B",
            Self::InvalidArgumentForPowerFunction => "2201F",
            Self::InvalidRowCountInLimit => "2201W",
            Self::InvalidRowCountInOffset => "2201X",
            Self::CardinalityViolation => "21000",
            Self::NullValueNotAllowed => "22004",
            Self::SubstringError => "22011",
            Self::InvalidEscapeSequence => "22025",
            Self::CharacterNotInRepertoire => "22021",
            Self::InvalidArgumentForLogarithm => "2201E",
            Self::InvalidArgumentForWidthBucket => "2201G",
            Self::ArraySubscriptError => "2202E",
            Self::CannotCoerce => "42846",
            Self::ExternalRoutineException => "38000",
            Self::DuplicateFunction => "42723",
            Self::AmbiguousFunction => "42725",
            Self::InvalidFunctionDefinition => "42P13",
            Self::InvalidRecursion => "42P19",
            Self::DataException => "22000",
            Self::OutOfMemory => "53200",
            Self::IoError => "58030",
            Self::InvalidStatement => "42000",
            Self::InternalError => "XX000",
        }
    }
}

/// An error in a statement. `message` is lowercase without a full stop; `detail` and `hint` are sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// Which SQLSTATE it reports.
    pub state: SqlState,
    /// What is wrong.
    pub message: String,
    /// The circumstances.
    pub detail: Option<String>,
    /// What the user can do.
    pub hint: Option<String>,
    /// Where: byte offset into the text that was given to `parse`.
    pub position: Option<usize>,
}

impl SqlError {
    /// An error that says `message`.
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
        }
    }

    /// Refuses a construct that is not there (yet), by its name.
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(SqlState::FeatureNotSupported, format!("{what} is not supported"))
    }

    /// Adds the circumstances.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the place, unless one is known already.
    #[must_use]
    pub fn at(mut self, position: usize) -> Self {
        self.position.get_or_insert(position);
        self
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SqlError {}
