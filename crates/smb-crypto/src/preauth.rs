//! The preauthentication integrity hash of dialect 3.1.1 (MS-SMB2 sections 3.2.5.2 and 3.3.5.4): a SHA-512 chain over the messages
//! before key derivation, so that modifying one of them changes the keys.

use aws_lc_rs::digest;

/// The current value of the hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Preauth([u8; 64]);

impl Default for Preauth {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Preauth {
    /// Returns the initial value for every connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message, including its header, in pieces.
    pub fn update(&mut self, message: &[&[u8]]) {
        let mut next = digest::Context::new(&digest::SHA512);
        next.update(&self.0);
        for piece in message {
            next.update(piece);
        }
        self.0.copy_from_slice(next.finish().as_ref());
    }

    /// Returns the value for [`super::kdf`].
    pub fn value(&self) -> &[u8; 64] {
        &self.0
    }
}

impl std::fmt::Debug for Preauth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Preauth({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use super::super::unhex;
    use super::*;

    /// Microsoft's example of a Windows 10 negotiation: "SMB 3.1.1 Pre-authentication integrity in Windows 10".
    #[test]
    fn windows_10_negotiation_matches() {
        let request = unhex(
            "FE534D4240000100000000000000800000000000000000000100000000000000FFFE000000000000
             00000000000000000000000000000000000000000000000024000500000000003F000000ECD86F32
             6276024F9F7752B89BB33F3A70000000020000000202100200030203110300000100260000000000
             010020000100FA49E6578F1F3A9F4CD3E9CC14A67AA884B3D05844E0E5A118225C15887F32FF0000
             0200060000000000020002000100",
        );
        let mut hash = Preauth::new();
        hash.update(&[&request]);
        assert_eq!(
            hash.value()[..],
            unhex(
                "DD94EFC5321BB618A2E208BA8920D2F422992526947A409B5037DE1E0FE8C7362B8C47122594CDE0
                 CE26AA9DFC8BCDBDE0621957672623351A7540F1E54A0426"
            )[..]
        );
        let mut pieces = Preauth::new();
        pieces.update(&[&request[..64], &[], &request[64..]]);
        assert_eq!(pieces, hash, "however the message is cut");
        let setup = unhex(
            "FE534D4240000100000000000100800000000000000000000300000000000000FFFE000000000000
             1900000000100000000000000000000000000000000000001900000101000000000000005800CF01
             0000000000000000A18201CB308201C7A0030A0101A28201AA048201A64E544C4D53535000030000
             001800180090000000EE00EE00A80000000C000C00580000001A001A0064000000120012007E0000
             001000100096010000158288E2060380250000000FECAC77A5F385A8BF9C38C706EEEDDCD3530055
             005400330031003100610064006D0069006E006900730074007200610074006F0072004400520049
             0056004500520033003100310000000000000000000000000000000000000000000000000063078E
             B639FE03E20A231C3AE3BF23080101000000000000A1A1F5ADCBAED001BC4AD05F223CC90F000000
             0002000C0053005500540033003100310001000C0053005500540033003100310004000C00530055
             00540033003100310003000C0053005500540033003100310007000800A1A1F5ADCBAED001060004
             00020000000800300030000000000000000000000000300000B61FEFCAA857EA57BF1EDCEBF8974B
             8E0EBA5A6DFD9D07A31D11B548F8C9D0CC0A00100000000000000000000000000000000000090016
             0063006900660073002F005300550054003300310031000000000000000000000000003B9BDFF38F
             5EE8F9663F11A0F4C03A78A31204100100000063775A9A5FD97F0600000000",
        );
        let mut last = Preauth([0; 64]);
        last.0.copy_from_slice(&unhex(
            "2729E3440DFDDD839E37193F6E8F20C20CEFB3469E453A70CD980EEC06B8835740A7376008563336
             4C8989895ECE81BF102DEEB14D4B7D48AFA76901A7A38387",
        ));
        last.update(&[&setup]);
        assert_eq!(
            last.value()[..],
            unhex(
                "0DD13628CC3ED218EF9DF9772D436D0887AB9814BFAE63A80AA845F36909DB7928622DDDAD522D97
                 51640A459762C5A9D6BB084CBB3CE6BDADEF5D5BCE3C6C01"
            )[..]
        );
    }
}
