//! Sizes: cuts a long list into messages that stay well below the largest frame.
//!
//! Pure. It measures with the wire's own codec, so that no list of small things with a few large ones is misjudged.

use bytes::BytesMut;
use runtime::codec;
use serde::Serialize;

/// The most bytes that one cut has, unless a single item has more.
const BYTES_MAX: usize = 768 * 1024;

/// The list, cut so that no piece with more than one item is above 768 KiB on the wire.
pub fn in_frames<T: Serialize>(items: Vec<T>) -> Vec<Vec<T>> {
    in_pieces(items, BYTES_MAX)
}

/// The list, cut so that no piece with more than one item is above so many bytes on the wire.
pub fn in_pieces<T: Serialize>(items: Vec<T>, bytes_max: usize) -> Vec<Vec<T>> {
    if items.len() == 1 {
        return vec![items]; // However large: it is not cut.
    }
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let (mut bytes, mut buffer) = (0, BytesMut::new());
    for item in items {
        buffer.clear();
        // What cannot be encoded will be refused when it is told.
        let length = match codec::encode_into(&item, &mut buffer) {
            Ok(()) => buffer.len(),
            Err(_) => 0,
        };
        if bytes + length > bytes_max && !piece.is_empty() {
            pieces.push(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes += length;
        piece.push(item);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_piece_is_above_the_bound_and_nothing_is_lost_or_moved() {
        let items: Vec<Vec<u8>> = (0..20_u8).map(|n| vec![n; 200_000]).collect();
        let pieces = in_frames(items.clone());
        assert!(pieces.iter().all(|piece| piece.len() <= 3));
        assert_eq!(pieces.concat(), items);
        assert!(in_frames(Vec::<u8>::new()).is_empty());
        assert_eq!(in_frames(vec![vec![0_u8; 2_000_000]]).len(), 1);
    }
}
