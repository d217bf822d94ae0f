//! Text that users chose, cut to what a message holds.

/// Returns `text` without the characters that lie beyond `most` bytes.
pub(super) fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        for (most, expected) in [(9, "zwölf"), (6, "zwölf"), (5, "zwöl"), (3, "zw"), (0, "")] {
            assert_eq!(cut("zwölf".to_owned(), most), expected);
        }
    }
}
