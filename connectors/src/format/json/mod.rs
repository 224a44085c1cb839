//! JSON records: decoded straight into columns, written straight from columns (ADR-0006).

mod changes;
mod decode;
mod document;
mod encode;
mod scan;
mod value;

pub(crate) use changes::ChangeDecoder;
pub(crate) use decode::JsonDecoder;
pub(crate) use encode::JsonEncoder;

/// Appends UTF-8 `text` as the content of a JSON string.
#[inline]
fn write_string_content(text: &[u8], out: &mut Vec<u8>) {
    let mut from = 0;
    loop {
        let stop = scan::string_stop(text, from);
        out.extend_from_slice(&text[from..stop]);
        if stop == text.len() {
            return;
        }
        write_escape(text[stop], out);
        from = stop + 1;
    }
}

#[cold]
fn write_escape(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        _ => {
            let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&digits);
        }
    }
}

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod encode_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
