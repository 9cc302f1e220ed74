//! Several pages from the disk at once: a device is busy only with tens of reads under way.
//!
//! Invariants: a frame whose page is on its way is latched by who asked for it; nobody who holds
//! such a latch waits for another.

use std::{cell::Cell, sync::Arc};

use super::{PageCache, PageId, WriteGuard, verify};
use crate::{
    codec::{to_u64, to_usize},
    disk::{AlignedBuffer, Completion, Request, queue::DEPTH},
    sync::Ordering,
};

impl PageCache {
    /// Brings those of the pages that are missing into the cache. A hint: what fails (an error, a
    /// damaged page) is left out, and who reads the page gets the error.
    pub fn load_many(&self, pages: &[PageId]) {
        let missing = || pages.iter().copied().filter(|page| !self.contains(*page));
        if missing().nth(1).is_none() {
            return;
        }
        let Ok(file) = self.file() else { return };
        let Some(env) = self.env.get() else { return };
        let mut guards: Vec<Option<WriteGuard<'_>>> = Vec::new();
        let outcome = self.queues.with(&**env, |queue| {
            for page in missing() {
                // A small cache must not be flooded.
                if to_u64(guards.len()) * 4 >= self.frames() || guards.len() >= DEPTH {
                    break;
                }
                let frame = self.take_frame();
                if !self.link(page, frame) {
                    self.release(frame);
                    continue;
                }
                let buffer = AlignedBuffer::zeroed(self.options.page_bytes);
                let (offset, length) = (self.offset(page), self.options.page_bytes);
                let request = Request::Read { file: Arc::clone(file), offset, buffer, length };
                queue.submit(to_u64(guards.len()), request);
                guards.push(Some(WriteGuard { cache: self, frame, changed: Cell::new(0) }));
            }
            self.misses.fetch_add(to_u64(guards.len()), Ordering::Relaxed);
            let mut done = Vec::with_capacity(guards.len());
            while queue.pending() > 0 {
                queue.wait(1, &mut done);
                for completion in done.drain(..) {
                    let guard = guards.get_mut(to_usize(completion.token)).and_then(Option::take);
                    if let Some(guard) = guard {
                        self.finish_load(guard, completion);
                    }
                }
            }
            Ok(())
        });
        // No queue to be had: the pages are read one by one, by who needs them.
        drop(outcome);
    }

    fn finish_load(&self, guard: WriteGuard<'_>, mut completion: Completion) {
        let page = guard.page();
        let whole = matches!(completion.result, Ok(count) if count == self.options.page_bytes);
        self.overlay.patch(page, completion.buffer.as_mut_slice());
        let bytes = completion.buffer.as_slice();
        if whole && verify(self.options.salt, page, bytes).is_ok() {
            self.put_image(guard.frame, bytes);
            self.take_overlay(page, guard.frame);
            return;
        }
        let frame = guard.forget();
        self.unlink(page, frame);
        self.release(frame);
    }
}
