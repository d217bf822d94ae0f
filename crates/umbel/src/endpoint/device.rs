//! What is said of a block device to which an item was written.

use umbel_engine::units::ByteCount;
use umbel_store::sink::DeviceReport;

/// Says that everything is on the device, and what takes time now.
pub(crate) const READING_BACK: &str = "all of it is on the device; syncing it and reading it back";

/// Returns what was done with a device, in lines.
pub(crate) fn device_lines(report: Option<DeviceReport>) -> Vec<String> {
    let Some(report) = report else { return Vec::new() };
    let mut lines = Vec::new();
    if report.zeroed_bytes > 0 {
        let bytes = ByteCount(report.zeroed_bytes);
        lines.push(format!("{bytes} of the device were made zeros, where the item has holes"));
    }
    if report.read_back_bytes > 0 {
        let bytes = ByteCount(report.read_back_bytes);
        let how = if report.past_cache {
            "past the system's cache"
        } else {
            "after the system's cache was dropped"
        };
        lines.push(format!("{bytes} were read back from the device, {how}, and are right"));
    }
    match report.partitions {
        None => {}
        Some(Ok(())) => lines.push("the partition table was read again".to_owned()),
        Some(Err(error)) => lines.push(format!(
            "the partition table was not read again ({error}): `partx -u` or a reboot does that"
        )),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said_and_nothing_else() {
        assert_eq!(device_lines(None), [""; 0]);
        assert_eq!(device_lines(Some(DeviceReport::default())), [""; 0]);
        let report = DeviceReport {
            kept_bytes: 0,
            zeroed_bytes: 50_000_000,
            read_back_bytes: 64_000_000,
            past_cache: true,
            partitions: Some(Err("Device or resource busy".to_owned())),
        };
        let lines = device_lines(Some(report));
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("50.0 MB of the device were made zeros"), "{lines:?}");
        assert!(lines[1].contains("past the system's cache"), "{lines:?}");
        assert!(lines[2].contains("partx -u"), "{lines:?}");
    }
}
