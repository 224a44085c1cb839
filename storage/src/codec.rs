//! How the values of this crate's own rows are laid out: a version byte, then fields one after the
//! other, numbers big-endian, text and bytes behind their length. A reader takes every byte or fails.

use crate::error::StorageError;

/// Appends the fields of one row to a buffer.
pub(crate) struct RowWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> RowWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, version: u8) -> Self {
        out.push(version);
        Self { out }
    }

    pub(crate) fn put_u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(crate) fn put_u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn put_u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn put_i64(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn put_bytes(&mut self, value: &[u8]) {
        self.put_u32(u32::try_from(value.len()).expect("a field is smaller than 4 GiB"));
        self.out.extend_from_slice(value);
    }

    /// Bytes that run to the end of the row; nothing may follow.
    pub(crate) fn put_rest(&mut self, value: &[u8]) {
        self.out.extend_from_slice(value);
    }
}

/// Takes the fields of one row from its bytes.
pub(crate) struct RowReader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> RowReader<'a> {
    /// `what` names the row in errors; `supported` is the one version that can be read.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str, supported: u8) -> Result<Self, StorageError> {
        let mut reader = Self { rest: bytes, what };
        let found = reader.u8()?;
        if found != supported {
            let (found, supported) = (found.into(), supported.into());
            return Err(StorageError::FormatVersion {
                part: what,
                found,
                supported,
            });
        }
        Ok(reader)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, StorageError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, StorageError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, StorageError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, StorageError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], StorageError> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<String, StorageError> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned)
            .map_err(|_| self.corrupt("A text is not UTF-8."))
    }

    /// All bytes that are left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Fails if bytes are left over.
    pub(crate) fn finish(self) -> Result<(), StorageError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.corrupt(format!("{} bytes are left over at its end.", self.rest.len())))
    }

    pub(crate) fn corrupt(&self, detail: impl Into<String>) -> StorageError {
        StorageError::corrupt(self.what, detail)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StorageError> {
        let bytes = self.take(N)?;
        Ok(bytes
            .try_into()
            .expect("take returns as many bytes as were asked for"))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], StorageError> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.corrupt("It ends before its last field."));
        };
        self.rest = rest;
        Ok(taken)
    }
}
