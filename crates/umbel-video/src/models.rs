//! The adaptive decisions of a segment, and the probabilities that they start with.
//!
//! The numbers are the odds of "no", in 256ths, as the test clips have them at rates from 32 kb/s
//! to 8 Mb/s. They only start: contexts follow what they see within some tens of decisions. Better
//! starts are worth about 5 % of the bits, for contexts start afresh in each segment.

use crate::planes::PLANES;
use crate::range::Bit;

const CLASSES: usize = 4;

/// The adaptive decisions of a segment.
#[derive(Debug, Clone)]
pub(crate) struct Models {
    /// Whether the next macroblock is not the neighbour; by whether the last one was.
    pub(crate) adjacent: [Bit; 2],
    /// Length of the gap otherwise.
    pub(crate) gap: [Bit; 20],
    /// Whether the version is another than that of the macroblock before.
    pub(crate) same_age: Bit,
    /// Length of an age otherwise.
    pub(crate) age: [Bit; 24],
    /// Whether a mean colour differs from that before, by component.
    pub(crate) dc_changed: [Bit; 3],
    /// Length of the difference otherwise, by kind.
    pub(crate) dc_length: [[Bit; 9]; 2],
    /// Whether a macroblock has anything new, by plane and active blocks.
    pub(crate) any: [[Bit; 4]; PLANES as usize],
    /// Whether a block has, by kind, class of planes, what it has already, the block before.
    pub(crate) block: [[[[Bit; 2]; 3]; CLASSES]; 2],
    /// Whether a zone becomes active, by kind, class of planes, zone, the zone before.
    pub(crate) zone: [[[[Bit; 2]; 6]; CLASSES]; 2],
    /// Whether a number becomes significant, by kind, zone, significant neighbours, low planes.
    pub(crate) number: [[[[Bit; 2]; 6]; 6]; 2],
    /// The bit after a number's highest, by kind and whether neighbours are significant.
    pub(crate) second: [[Bit; 2]; 2],
}

/// Class of a plane: numbers are distributed alike in it.
pub(crate) const fn class(plane: usize) -> usize {
    match plane {
        0..=2 => 0,
        3..=4 => 1,
        5..=7 => 2,
        _ => 3,
    }
}

const ADJACENT: [u8; 2] = [103, 245];
const GAP: [u8; 20] =
    [59, 75, 66, 42, 60, 121, 232, 216, 172, 175, 163, 128, 128, 128, 128, 128, 128, 128, 128, 128];
const AGE: [u8; 24] = [
    8, 53, 83, 66, 68, 133, 237, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    128, 128, 128, 128,
];
const DC_CHANGED: [u8; 3] = [18, 142, 77];
const DC_LENGTH: [[u8; 9]; 2] =
    [[28, 59, 121, 190, 199, 242, 247, 128, 128], [154, 197, 220, 247, 238, 128, 128, 128, 128]];
const ANY: [[u8; 4]; 12] = [
    [163, 247, 197, 11],
    [171, 247, 199, 8],
    [171, 247, 67, 12],
    [19, 224, 15, 8],
    [8, 8, 8, 8],
    [62, 28, 8, 8],
    [83, 8, 8, 8],
    [46, 18, 8, 8],
    [175, 42, 11, 93],
    [236, 48, 195, 128],
    [247, 184, 128, 128],
    [247, 128, 128, 128],
];
const BLOCK: [[[[u8; 2]; 3]; 4]; 2] = [
    [
        [[242, 206], [236, 75], [141, 11]],
        [[179, 74], [79, 52], [23, 8]],
        [[111, 71], [62, 50], [16, 8]],
        [[162, 187], [82, 109], [16, 51]],
    ],
    [
        [[91, 103], [49, 59], [41, 10]],
        [[44, 98], [111, 46], [20, 8]],
        [[180, 239], [48, 39], [8, 8]],
        [[247, 247], [110, 128], [128, 128]],
    ],
];
const ZONE: [[[[u8; 2]; 6]; 4]; 2] = [
    [
        [[124, 128], [113, 164], [247, 34], [183, 41], [247, 103], [243, 100]],
        [[123, 128], [46, 84], [205, 128], [214, 91], [237, 115], [229, 124]],
        [[168, 128], [49, 106], [143, 131], [204, 120], [247, 147], [247, 146]],
        [[85, 128], [19, 220], [245, 179], [243, 191], [247, 214], [247, 159]],
    ],
    [
        [[102, 128], [23, 56], [130, 169], [143, 80], [216, 102], [228, 115]],
        [[82, 128], [78, 198], [245, 164], [237, 52], [240, 79], [237, 94]],
        [[247, 128], [47, 247], [85, 158], [207, 152], [247, 213], [247, 217]],
        [[247, 128], [8, 128], [60, 242], [247, 247], [247, 183], [247, 128]],
    ],
];
const NUMBER: [[[[u8; 2]; 6]; 6]; 2] = [
    [
        [[128, 128], [128, 128], [128, 128], [128, 128], [128, 128], [128, 128]],
        [[114, 102], [134, 107], [146, 125], [123, 115], [126, 120], [125, 121]],
        [[176, 151], [159, 140], [159, 142], [138, 128], [147, 138], [135, 128]],
        [[223, 202], [197, 207], [189, 192], [169, 191], [157, 188], [140, 154]],
        [[233, 199], [202, 212], [192, 216], [171, 204], [159, 193], [151, 195]],
        [[240, 241], [211, 215], [197, 207], [166, 173], [150, 172], [148, 158]],
    ],
    [
        [[128, 128], [128, 128], [128, 128], [128, 128], [128, 128], [128, 128]],
        [[122, 64], [157, 96], [159, 143], [115, 90], [124, 173], [102, 76]],
        [[178, 207], [158, 190], [166, 184], [147, 152], [134, 186], [132, 141]],
        [[226, 220], [199, 205], [195, 211], [171, 169], [137, 190], [137, 174]],
        [[234, 232], [207, 206], [196, 211], [175, 187], [144, 196], [144, 172]],
        [[245, 240], [225, 216], [204, 213], [174, 168], [143, 142], [145, 144]],
    ],
];
const SECOND: [[u8; 2]; 2] = [[183, 168], [165, 175]];

const fn of1<const N: usize>(odds: [u8; N]) -> [Bit; N] {
    let mut out = [Bit::of(128); N];
    let mut i = 0;
    while i < N {
        out[i] = Bit::of(odds[i]);
        i += 1;
    }
    out
}

const fn of2<const A: usize, const B: usize>(odds: [[u8; B]; A]) -> [[Bit; B]; A] {
    let mut out = [[Bit::of(128); B]; A];
    let mut i = 0;
    while i < A {
        out[i] = of1(odds[i]);
        i += 1;
    }
    out
}

const fn of3<const A: usize, const B: usize, const C: usize>(
    odds: [[[u8; C]; B]; A],
) -> [[[Bit; C]; B]; A] {
    let mut out = [[[Bit::of(128); C]; B]; A];
    let mut i = 0;
    while i < A {
        out[i] = of2(odds[i]);
        i += 1;
    }
    out
}

const fn of4<const A: usize, const B: usize, const C: usize, const D: usize>(
    odds: [[[[u8; D]; C]; B]; A],
) -> [[[[Bit; D]; C]; B]; A] {
    let mut out = [[[[Bit::of(128); D]; C]; B]; A];
    let mut i = 0;
    while i < A {
        out[i] = of3(odds[i]);
        i += 1;
    }
    out
}

impl Models {
    /// The probabilities that a segment starts with.
    pub(crate) const START: Self = Self {
        adjacent: of1(ADJACENT),
        gap: of1(GAP),
        same_age: Bit::of(238),
        age: of1(AGE),
        dc_changed: of1(DC_CHANGED),
        dc_length: of2(DC_LENGTH),
        any: of2(ANY),
        block: of4(BLOCK),
        zone: of4(ZONE),
        number: of4(NUMBER),
        second: of2(SECOND),
    };
}
