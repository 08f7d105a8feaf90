//! The heap: mimalloc, asked in the way that it answers fastest.
//!
//! [`MiMalloc`] names an alignment with every request. mimalloc looks in one place then, and if nothing is free there it takes a longer
//! way and a larger block, though all its blocks are aligned as nearly every type needs it. So only what needs more is asked for like that.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{mi_malloc, mi_realloc, mi_zalloc};
use mimalloc::MiMalloc;

/// Every block of at least so many bytes is aligned to as many; a smaller one to its own size.
const ALIGNED: usize = 16;

/// The allocator. It keeps nothing itself.
pub struct Heap;

/// Whether a block of this size is aligned so, whoever asks.
fn is_usual(size: usize, align: usize) -> bool {
    align <= ALIGNED && align <= size
}

// SAFETY: every block comes from mimalloc and goes back to it. It has the size that was asked for, and is aligned as was asked for: by
// what mimalloc promises of blocks of its size, or since the alignment was named.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_usual(layout.size(), layout.align()) {
            // SAFETY: any size may be asked for.
            true => unsafe { mi_malloc(layout.size()).cast() },
            // SAFETY: as the caller promises.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_usual(layout.size(), layout.align()) {
            // SAFETY: any size may be asked for.
            true => unsafe { mi_zalloc(layout.size()).cast() },
            // SAFETY: as the caller promises.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; all blocks are given back alike.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match is_usual(size, layout.align()) {
            // SAFETY: the caller promises that the block is one of ours and in use.
            true => unsafe { mi_realloc(block.cast(), size).cast() },
            // SAFETY: as the caller promises.
            false => unsafe { MiMalloc.realloc(block, layout, size) },
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_as_asked_for_and_keep_their_bytes_when_they_grow() {
        for align in [1_usize, 2, 4, 8, 16, 32, 64, 128, 4096] {
            for size in (1..300).chain([1_000, 5_000, 70_000]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the size is not zero; nothing is read or written beyond it.
                unsafe {
                    let block = Heap.alloc_zeroed(layout);
                    assert_eq!(block.align_offset(align), 0, "{layout:?}");
                    assert!((0..size).all(|at| *block.add(at) == 0), "{layout:?}");
                    block.write_bytes(7, size);
                    let grown = Heap.realloc(block, layout, 3 * size);
                    assert_eq!(grown.align_offset(align), 0, "{layout:?}");
                    assert!((0..size).all(|at| *grown.add(at) == 7), "{layout:?}");
                    let layout = Layout::from_size_align(3 * size, align).unwrap();
                    let shrunk = Heap.realloc(grown, layout, size);
                    assert_eq!(shrunk.align_offset(align), 0, "{layout:?}");
                    Heap.dealloc(shrunk, Layout::from_size_align(size, align).unwrap());
                    let one = Heap.alloc(layout);
                    assert_eq!(one.align_offset(align), 0, "{layout:?}");
                    Heap.dealloc(one, layout);
                }
            }
        }
    }
}
