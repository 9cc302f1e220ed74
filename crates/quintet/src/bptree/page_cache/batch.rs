//! Several pages from the disk at once: a device is busy only with tens of reads under way.
//!
//! Invariants: a frame whose page is on its way is latched by who asked for it; nobody who holds
//! such a latch waits for another.

use std::sync::Arc;

use super::{MASK, PageCache, PageId, WriteGuard};
use crate::{
    bptree::page_cache::page_file::verify,
    io::{AlignedBuffer, Completion, Request, queue::DEPTH},
    util::{
        codec::{to_u64, to_usize},
        sync::Ordering,
    },
};

impl PageCache {
    /// Brings those of the pages that are missing into the cache, as many at once as a device has
    /// use for. A hint: what fails (an error, a damaged page), or is more than a quarter of the
    /// cache, is left out, and who reads the page gets the error.
    pub fn load_many(&self, pages: &[PageId]) {
        let missing = || pages.iter().copied().filter(|page| !self.contains(*page));
        if missing().nth(1).is_none() {
            return;
        }
        let Ok(file) = self.file() else { return };
        let Some(env) = self.env.get() else { return };
        // A small cache must not be flooded.
        let most = to_usize(self.frames_reachable().div_ceil(4));
        let outcome = self.queues.with(&**env, |queue| {
            let wanted: Vec<_> = missing().take(most).collect();
            self.overlay.read_ahead(&wanted, queue);
            let mut loading: Vec<Option<WriteGuard<'_>>> = Vec::new();
            let (mut done, mut buffers) = (Vec::with_capacity(DEPTH), Vec::new());
            for page in wanted.into_iter().filter(|page| !self.contains(*page)) {
                if queue.pending() >= DEPTH {
                    queue.wait(1, &mut done);
                    self.finish_loads(&mut loading, &mut done, &mut buffers);
                }
                let frame = self.take_frame();
                if !self.link(page, frame) {
                    self.release(frame);
                    continue;
                }
                let (offset, length) = (self.offset(page), self.options.page_bytes);
                let buffer = buffers.pop().unwrap_or_else(|| AlignedBuffer::zeroed(length));
                let request = Request::Read { file: Arc::clone(file), offset, buffer, length };
                queue.submit(to_u64(loading.len()), request);
                loading.push(Some(WriteGuard::new(self, frame)));
            }
            self.misses.fetch_add(to_u64(loading.len()), Ordering::Relaxed);
            while queue.pending() > 0 {
                queue.wait(1, &mut done);
                self.finish_loads(&mut loading, &mut done, &mut buffers);
            }
            Ok(())
        });
        // No queue to be had: the pages are read one by one, by who needs them.
        drop(outcome);
    }

    /// Lets the pages that have come be read, and keeps their buffers for others.
    fn finish_loads(
        &self,
        loading: &mut [Option<WriteGuard<'_>>],
        done: &mut Vec<Completion>,
        buffers: &mut Vec<AlignedBuffer>,
    ) {
        for mut completion in done.drain(..) {
            let guard = loading.get_mut(to_usize(completion.token)).and_then(Option::take);
            if let Some(guard) = guard {
                self.finish_load(guard, &mut completion);
            }
            buffers.push(completion.buffer);
        }
    }

    fn finish_load(&self, guard: WriteGuard<'_>, completion: &mut Completion) {
        let page = guard.page();
        let whole = matches!(completion.result, Ok(count) if count == self.options.page_bytes);
        let place = (self.label.as_str(), self.offset(page));
        let units = self.overlay.patch(page, completion.buffer.as_mut_slice(), place);
        let bytes = completion.buffer.as_slice();
        if let Ok(units) = units
            && whole
            && verify(self.options.salt, page, bytes).is_ok()
        {
            self.put_image(guard.frame, bytes);
            self.set(guard.frame, MASK, units.unwrap_or(0));
            return;
        }
        let frame = guard.forget();
        self.unlink(page, frame);
        self.release(frame);
    }
}
