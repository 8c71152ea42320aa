//! What the operating system says, as a connector's error: which file, which act, and whether trying again can help.

use std::io::{self, ErrorKind};
use std::path::Path;

use cofferdam_dataflow::connector::ConnectorError;

/// Returns the error of a read. What a decoder says of its input is damage; what the system says may pass.
pub(super) fn read_failed(path: &Path, error: io::Error) -> ConnectorError {
    let shown = path.display();
    let failed = match error.kind() {
        ErrorKind::NotFound => ConnectorError::permanent("input-missing", format!("\"{shown}\" does not exist")),
        ErrorKind::PermissionDenied => ConnectorError::permanent("io-read", format!("no permission to read \"{shown}\"")),
        _ if error.raw_os_error().is_none() => {
            ConnectorError::permanent("input-damaged", format!("\"{shown}\" cannot be decompressed"))
        }
        _ => ConnectorError::transient("io-read", format!("cannot read \"{shown}\"")),
    };
    failed.with_source(error)
}

/// Returns the error of a write, or of another change of the output, such as `rename`.
pub(super) fn write_failed(act: &str, path: &Path, error: io::Error) -> ConnectorError {
    let shown = path.display();
    let failed = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ConnectorError::transient("disk-full", format!("cannot {act} \"{shown}\": no space is left"))
        }
        ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::NotADirectory
        | ErrorKind::AlreadyExists
        | ErrorKind::NotFound => ConnectorError::permanent("output-not-writable", format!("cannot {act} \"{shown}\"")),
        // Nobody reads it any more.
        ErrorKind::BrokenPipe => ConnectorError::permanent("io-write", format!("cannot {act} \"{shown}\"")),
        _ => ConnectorError::transient("io-write", format!("cannot {act} \"{shown}\"")),
    };
    failed.with_source(error)
}

/// Returns the error of options that contradict each other or ask for what there is not.
pub(super) fn option_refused(message: impl Into<String>) -> ConnectorError {
    ConnectorError::permanent("option-refused", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_damaged_file_have_names_of_their_own() {
        let path = Path::new("out/part");
        let full = write_failed("write", path, io::Error::from_raw_os_error(28));
        assert_eq!((full.code, full.transient), ("disk-full", true));
        assert_eq!(full.to_string(), "disk-full: cannot write \"out/part\": no space is left");
        let denied = write_failed("create", path, ErrorKind::PermissionDenied.into());
        assert_eq!((denied.code, denied.transient), ("output-not-writable", false));
        let damaged = read_failed(path, io::Error::new(ErrorKind::InvalidInput, "corrupt deflate stream"));
        assert_eq!((damaged.code, damaged.transient), ("input-damaged", false));
        let passing = read_failed(path, io::Error::from_raw_os_error(5));
        assert_eq!((passing.code, passing.transient), ("io-read", true));
    }
}
