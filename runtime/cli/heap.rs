//! The heap: mimalloc, called by its fastest functions.
//!
//! [`MiMalloc`] passes an alignment with every request. In that case mimalloc checks one place, and
//! if nothing is free there it takes a slower path and a larger block, although all its blocks have
//! the alignment of nearly every type. So only requests with a larger alignment pass it.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{mi_malloc, mi_option_set, mi_option_t, mi_realloc, mi_zalloc};
use mimalloc::MiMalloc;

/// Blocks of at least this size have this alignment; smaller ones are aligned to their own size.
const USUAL_ALIGNMENT: usize = 16;

/// mimalloc's option `purge_delay`, in milliseconds, which the crate does not name.
const PURGE_DELAY: mi_option_t = 15;

/// Returns free memory to the system at once, and not after a second: for an agent, which shares
/// its host with the tasks. Takes no measurable time of launches.
#[allow(unsafe_code)]
pub fn return_free_memory_at_once() {
    // SAFETY: options may be set at any time.
    unsafe { mi_option_set(PURGE_DELAY, 0) }
}

/// The global allocator. Has no state of its own.
pub struct Heap;

/// Whether every block of this size has this alignment.
fn has_usual_alignment(size: usize, align: usize) -> bool {
    align <= USUAL_ALIGNMENT && align <= size
}

// SAFETY: every block comes from mimalloc and returns to it. It has the requested size and
// alignment: guaranteed by mimalloc for blocks of its size, or because the alignment was passed.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match has_usual_alignment(layout.size(), layout.align()) {
            // SAFETY: any size is allowed.
            true => unsafe { mi_malloc(layout.size()).cast() },
            // SAFETY: guaranteed by the caller.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match has_usual_alignment(layout.size(), layout.align()) {
            // SAFETY: any size is allowed.
            true => unsafe { mi_zalloc(layout.size()).cast() },
            // SAFETY: guaranteed by the caller.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller; all blocks are freed alike.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match has_usual_alignment(size, layout.align()) {
            // SAFETY: the caller guarantees that the block is ours and in use.
            true => unsafe { mi_realloc(block.cast(), size).cast() },
            // SAFETY: guaranteed by the caller.
            false => unsafe { MiMalloc.realloc(block, layout, size) },
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_alignment_and_content() {
        for align in [1_usize, 2, 4, 8, 16, 32, 64, 128, 4096] {
            for size in (1..300).chain([1_000, 5_000, 70_000]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the size is not zero; no access is beyond it.
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
