#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| headgate_tests::fuzz::discovery_wsd(data));
