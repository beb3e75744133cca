//! Attributes: sets, values, and access control lists.

use wire::{Parsed, Rule, be_u32, emit, reject};

use super::{
    Component4, Fsid4, LIST_MAX, NfsFh4, Nfsstat4, Nfstime4, OPAQUE_LIMIT, Specdata4, UNLIMITED,
};
use crate::xdr::{Bounded, Xdr, choice, numbers, structs, union};

/// Maximum number of words in a set: attribute numbers are below 96, the rest is for future ones.
pub const BITMAP_WORDS_MAX: usize = 64;
/// Number of words for all known attributes.
const WORDS: usize = 3;

/// `bitmap4` as a set of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap4 {
    words: [u32; WORDS],
    /// The set has attributes above all known numbers, which are not stored.
    beyond: bool,
}

impl Bitmap4 {
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; WORDS], beyond: false };

    /// Builds the set of these numbers, all below 96.
    pub const fn of(numbers: &[u32]) -> Self {
        let mut words = [0; WORDS];
        let mut i = 0;
        while i < numbers.len() {
            words[(numbers[i] / 32) as usize] |= 1 << (numbers[i] % 32);
            i += 1;
        }
        Self { words, beyond: false }
    }

    /// Checks whether the attribute is in the set.
    pub fn has(&self, number: u32) -> bool {
        let word = usize::try_from(number / 32).ok().and_then(|i| self.words.get(i));
        word.is_some_and(|word| word & (1 << (number % 32)) != 0)
    }

    /// Adds an attribute below 96.
    pub fn add(&mut self, number: u32) {
        *self = self.or(&Self::of(&[number]));
    }

    /// Checks that the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS] && !self.beyond
    }

    /// Returns the attributes in both sets.
    pub const fn and(&self, other: &Self) -> Self {
        let (a, b) = (&self.words, &other.words);
        Self { words: [a[0] & b[0], a[1] & b[1], a[2] & b[2]], beyond: false }
    }

    /// Returns the attributes in either set.
    pub const fn or(&self, other: &Self) -> Self {
        let (a, b) = (&self.words, &other.words);
        let beyond = self.beyond || other.beyond;
        Self { words: [a[0] | b[0], a[1] | b[1], a[2] | b[2]], beyond }
    }

    /// Returns the attributes of this set that are not in the other.
    pub const fn without(&self, other: &Self) -> Self {
        let (a, b) = (&self.words, &other.words);
        Self { words: [a[0] & !b[0], a[1] & !b[1], a[2] & !b[2]], beyond: self.beyond }
    }

    /// Checks that the other set contains all attributes of this one.
    pub fn is_within(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }

    /// Iterates over the numbers in ascending order, which is the order of values in `attrlist4`.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..).step_by(32).zip(self.words).flat_map(|(first, mut word)| {
            std::iter::from_fn(move || {
                let number = (word != 0).then(|| first + word.trailing_zeros());
                word &= word.wrapping_sub(1);
                number
            })
        })
    }
}

impl<'a> Xdr<'a> for Bitmap4 {
    #[inline]
    fn field(name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        let (mut rest, n) = be_u32(name)(input)?;
        let max = BITMAP_WORDS_MAX;
        let n = usize::try_from(n).ok().filter(|n| *n <= max);
        let n = n.ok_or_else(|| reject(name, Rule::OverLimit { max }, input))?;
        let mut set = Self::EMPTY;
        for i in 0..n {
            let (behind, word) = be_u32(name)(rest)?;
            match set.words.get_mut(i) {
                Some(place) => *place = word,
                None => set.beyond |= word != 0,
            }
            rest = behind;
        }
        Ok((rest, set))
    }

    /// Omits trailing zero words. Attributes above the stored words are encoded as the first such number, because only their
    /// existence is known.
    #[inline]
    fn emit(&self, out: &mut Vec<u8>) {
        if self.beyond {
            emit::count(out, WORDS + 1);
            self.words.iter().chain(&[1]).for_each(|&word| emit::be_u32(out, word));
            return;
        }
        let n = self.words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
        emit::count(out, n);
        self.words[..n].iter().for_each(|&word| emit::be_u32(out, word));
    }
}

numbers! {
    /// `nfs_ftype4`.
    pub enum NfsFtype4 {
        Reg = 1,
        Dir = 2,
        Blk = 3,
        Chr = 4,
        Lnk = 5,
        Sock = 6,
        Fifo = 7,
        Attrdir = 8,
        Namedattr = 9,
    }

    /// `fs4_status_type`.
    pub enum Fs4StatusType {
        Fixed = 1,
        Updated = 2,
        Versioned = 3,
        Writable = 4,
        Referral = 5,
    }

    /// `change_attr_type4`.
    pub enum ChangeAttrType {
        MonotonicIncr = 0,
        VersionCounter = 1,
        VersionCounterNopnfs = 2,
        TimeMetadata = 3,
        Undefined = 4,
    }
}

/// Positions in `fls_info` and their values (RFC 8881 section 11.17.1).
pub mod fsli4bx {
    /// Length of `fls_info`, in bytes.
    pub const LEN: usize = 12;
    /// FSLI4BX_GFLAGS
    pub const GFLAGS: usize = 0;
    /// FSLI4BX_TFLAGS
    pub const TFLAGS: usize = 1;
    /// FSLI4BX_READRANK: lower is better.
    pub const READRANK: usize = 8;
    /// FSLI4BX_WRITERANK
    pub const WRITERANK: usize = 9;
    /// FSLI4GF_WRITABLE, a general flag.
    pub const GF_WRITABLE: u8 = 1;
    /// FSLI4TF_RDMA, a transport flag.
    pub const TF_RDMA: u8 = 1;
}

structs! {
    /// `fattr4`: a set of attributes, and their values in the order of their numbers.
    #[derive(Copy)]
    pub struct Fattr4<'a> {
        attrmask: Bitmap4,
        attr_vals: &'a [u8] as UNLIMITED,
    }

    /// `nfsace4`.
    #[derive(Copy)]
    pub struct Nfsace4<'a> {
        acetype: u32,
        flag: u32,
        access_mask: u32,
        who: &'a [u8] as UNLIMITED,
    }

    /// `fattr4_acl`.
    pub struct Acl<'a> {
        aces: Vec<Nfsace4<'a>> as LIST_MAX,
    }

    /// `nfsacl41`.
    pub struct Nfsacl41<'a> {
        na41_flag: u32,
        na41_aces: Vec<Nfsace4<'a>> as LIST_MAX,
    }

    /// `pathname4`.
    pub struct Pathname4<'a> {
        components: Vec<Component4<'a>> as LIST_MAX,
    }

    /// `fs_location4`.
    pub struct FsLocation4<'a> {
        server: Vec<Component4<'a>> as LIST_MAX,
        rootpath: Pathname4<'a>,
    }

    /// `fs_locations4`.
    pub struct FsLocations4<'a> {
        fs_root: Pathname4<'a>,
        locations: Vec<FsLocation4<'a>> as LIST_MAX,
    }

    /// `fs_locations_server4`.
    #[derive(Copy)]
    pub struct FsLocationsServer4<'a> {
        /// Maximum age of the data on that server, in seconds; -1: unknown.
        fls_currency: i32,
        /// Bytes at the positions in [`fsli4bx`].
        fls_info: &'a [u8] as OPAQUE_LIMIT,
        fls_server: Component4<'a>,
    }

    /// `fs_locations_item4`: servers that have the file system at the same path.
    pub struct FsLocationsItem4<'a> {
        fli_entries: Vec<FsLocationsServer4<'a>> as LIST_MAX,
        fli_rootpath: Pathname4<'a>,
    }

    /// `fs_locations_info4` (RFC 8881 section 11.17).
    pub struct FsLocationsInfo4<'a> {
        fli_flags: u32,
        /// Seconds for which a client may cache it.
        fli_valid_for: i32,
        fli_fs_root: Pathname4<'a>,
        fli_items: Vec<FsLocationsItem4<'a>> as LIST_MAX,
    }

    /// `fs4_status` (RFC 8881 section 11.18).
    #[derive(Copy)]
    pub struct Fs4Status<'a> {
        fss_absent: bool,
        fss_type: Fs4StatusType,
        fss_source: Component4<'a>,
        fss_current: Component4<'a>,
        /// Age in seconds; -1: not applicable.
        fss_age: i32,
        fss_version: Nfstime4,
    }

    /// `mode_masked4`.
    #[derive(Copy)]
    pub struct ModeMasked4 {
        mm_value_to_set: u32,
        mm_mask_bits: u32,
    }

    /// `mode_umask4` (RFC 8275).
    #[derive(Copy)]
    pub struct ModeUmask4 {
        mu_mode: u32,
        mu_umask: u32,
    }

    /// `sec_label4`.
    #[derive(Copy)]
    pub struct SecLabel4<'a> {
        slai_lfs: u32,
        slai_pi: u32,
        slai_data: &'a [u8] as OPAQUE_LIMIT,
    }

    /// `open_arguments4` (RFC 9754).
    #[derive(Copy)]
    pub struct OpenArguments4 {
        oa_share_access: Bitmap4,
        oa_share_deny: Bitmap4,
        oa_share_access_want: Bitmap4,
        oa_open_claim: Bitmap4,
        oa_create_mode: Bitmap4,
    }
}

union! {
    /// `settime4`.
    #[derive(Copy)]
    pub enum Settime4 switch "time_how4" {
        0 => ServerTime,
        1 => ClientTime(Nfstime4),
    }
}

choice! {
    /// The value of an attribute, selected by its number.
    pub enum Value<'a> {
        0 => SupportedAttrs(Bitmap4),
        1 => Type(NfsFtype4),
        2 => FhExpireType(u32),
        3 => Change(u64),
        4 => Size(u64),
        5 => LinkSupport(bool),
        6 => SymlinkSupport(bool),
        7 => NamedAttr(bool),
        8 => Fsid(Fsid4),
        9 => UniqueHandles(bool),
        10 => LeaseTime(u32),
        11 => RdattrError(Nfsstat4),
        12 => Acl(Acl<'a>),
        13 => Aclsupport(u32),
        14 => Archive(bool),
        15 => Cansettime(bool),
        16 => CaseInsensitive(bool),
        17 => CasePreserving(bool),
        18 => ChownRestricted(bool),
        19 => Filehandle(NfsFh4<'a>),
        20 => Fileid(u64),
        21 => FilesAvail(u64),
        22 => FilesFree(u64),
        23 => FilesTotal(u64),
        24 => FsLocations(FsLocations4<'a>),
        25 => Hidden(bool),
        26 => Homogeneous(bool),
        27 => Maxfilesize(u64),
        28 => Maxlink(u32),
        29 => Maxname(u32),
        30 => Maxread(u64),
        31 => Maxwrite(u64),
        32 => Mimetype(Component4<'a>),
        33 => Mode(u32),
        34 => NoTrunc(bool),
        35 => Numlinks(u32),
        36 => Owner(Component4<'a>),
        37 => OwnerGroup(Component4<'a>),
        38 => QuotaAvailHard(u64),
        39 => QuotaAvailSoft(u64),
        40 => QuotaUsed(u64),
        41 => Rawdev(Specdata4),
        42 => SpaceAvail(u64),
        43 => SpaceFree(u64),
        44 => SpaceTotal(u64),
        45 => SpaceUsed(u64),
        46 => System(bool),
        47 => TimeAccess(Nfstime4),
        48 => TimeAccessSet(Settime4),
        49 => TimeBackup(Nfstime4),
        50 => TimeCreate(Nfstime4),
        51 => TimeDelta(Nfstime4),
        52 => TimeMetadata(Nfstime4),
        53 => TimeModify(Nfstime4),
        54 => TimeModifySet(Settime4),
        55 => MountedOnFileid(u64),
        58 => Dacl(Nfsacl41<'a>),
        59 => Sacl(Nfsacl41<'a>),
        61 => FsStatus(Fs4Status<'a>),
        67 => FsLocationsInfo(FsLocationsInfo4<'a>),
        74 => ModeSetMasked(ModeMasked4),
        75 => SuppattrExclcreat(Bitmap4),
        76 => FsCharsetCap(u32),
        77 => CloneBlksize(u32),
        78 => SpaceFreed(u64),
        79 => ChangeAttrType(ChangeAttrType),
        80 => SecLabel(SecLabel4<'a>),
        81 => ModeUmask(ModeUmask4),
        82 => XattrSupport(bool),
        84 => TimeDelegAccess(Nfstime4),
        85 => TimeDelegModify(Nfstime4),
        86 => OpenArguments(OpenArguments4),
    }
}

impl<'a> Fattr4<'a> {
    /// Parses the values in the order of their numbers.
    ///
    /// # Errors
    ///
    /// The first value that breaks a rule; [`Rule::Value`] of `attrmask` for an attribute of unknown type, of `attr_vals` for bytes
    /// after the last value.
    pub fn values(&self) -> Parsed<'a, Vec<Value<'a>>> {
        let mut rest = self.attr_vals;
        let mut values = Vec::new();
        if self.attrmask.beyond {
            return Err(reject("attrmask", Rule::Value, rest));
        }
        for number in self.attrmask.iter() {
            let (behind, value) = Value::parse(number, rest)?;
            values.push(value.ok_or_else(|| reject("attrmask", Rule::Value, rest))?);
            rest = behind;
        }
        match rest {
            [] => Ok((rest, values)),
            _ => Err(reject("attr_vals", Rule::Value, rest)),
        }
    }
}

/// Appends a `fattr4` with these values, in the order of their numbers.
pub fn put_fattr(attrmask: &Bitmap4, values: &[Value<'_>], out: &mut Vec<u8>) {
    attrmask.emit(out);
    let mut vals = Vec::new();
    values.iter().for_each(|value| value.emit(&mut vals));
    Bounded::put(&vals.as_slice(), out);
}
