//! Information about named pipes in queries and SET_INFO (MS-FSCC sections 2.4.37, 2.4.38 and 2.3.46).

use super::fixed;

/// FILE_PIPE_MESSAGE_TYPE, a value of `NamedPipeType` and `ReadMode`.
pub const MESSAGE: u32 = 1;
/// FILE_PIPE_COMPLETE_OPERATION, a value of `CompletionMode`: a read of an empty pipe fails at once. FILE_PIPE_QUEUE_OPERATION, 0,
/// waits.
pub const COMPLETE_OPERATION: u32 = 1;
/// FILE_PIPE_FULL_DUPLEX
pub const FULL_DUPLEX: u32 = 2;
/// FILE_PIPE_CONNECTED_STATE
pub const CONNECTED: u32 = 3;
/// FILE_PIPE_SERVER_END
pub const SERVER_END: u32 = 1;

fixed! {
    /// FilePipeInformation (section 2.4.37), in both directions.
    Information (8) {
        read_mode: u32 = "ReadMode",
        completion_mode: u32 = "CompletionMode",
    }
    /// FilePipeLocalInformation (section 2.4.38).
    LocalInformation (40) {
        pipe_type: u32 = "NamedPipeType",
        configuration: u32 = "NamedPipeConfiguration",
        maximum_instances: u32 = "MaximumInstances",
        current_instances: u32 = "CurrentInstances",
        inbound_quota: u32 = "InboundQuota",
        read_data_available: u32 = "ReadDataAvailable",
        outbound_quota: u32 = "OutboundQuota",
        write_quota_available: u32 = "WriteQuotaAvailable",
        state: u32 = "NamedPipeState",
        end: u32 = "NamedPipeEnd",
    }
    /// FSCTL_PIPE_PEEK_REPLY without data (section 2.3.46).
    PeekReply (16) {
        state: u32 = "NamedPipeState",
        read_data_available: u32 = "ReadDataAvailable",
        messages: u32 = "NumberOfMessages",
        message_length: u32 = "MessageLength",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_match_specification_tables() {
        let bytes = Information { read_mode: MESSAGE, completion_mode: COMPLETE_OPERATION }.emit();
        assert_eq!(bytes, [1, 0, 0, 0, 1, 0, 0, 0]);
        let fault = Information::parse(&bytes[..6]).unwrap_err();
        assert_eq!(fault.to_string(), "CompletionMode truncated at 4");
        let local =
            LocalInformation { read_data_available: 7, end: SERVER_END, ..Default::default() };
        let bytes = local.emit();
        assert_eq!((bytes.len(), bytes[20], bytes[36]), (40, 7, 1));
        let peek = PeekReply { state: CONNECTED, message_length: 9, ..Default::default() };
        assert_eq!(peek.emit(), [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn values_round_trip(bytes: [u8; 40], more: Vec<u8>) {
            let whole = [&bytes[..], &more].concat();
            let local = LocalInformation::parse(&whole).unwrap();
            prop_assert_eq!(local.emit(), bytes);
            prop_assert_eq!(PeekReply::parse(&whole).unwrap().emit(), &bytes[..16]);
            prop_assert_eq!(Information::parse(&whole).unwrap().emit(), &bytes[..8]);
        }
    }
}
