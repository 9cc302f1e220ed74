//! Batched reads: several missing pages with one queue, because a device needs tens of reads in
//! flight.
//!
//! Invariants: the thread that requested a page holds the latch of its frame while the read is in
//! flight, and waits for no other latch meanwhile.

use std::sync::Arc;

use super::{
    cache::PageCache, descriptor::MASK, guard::WriteGuard, page_file::verify, page_id::PageId,
};
use crate::{
    io::{AlignedBuffer, Completion, Request, queue::DEPTH},
    util::{
        codec::{to_u64, to_usize},
        sync::Ordering,
    },
};

impl PageCache {
    /// Loads the missing pages into the cache, with at most [`DEPTH`] reads in flight. A hint:
    /// pages that cannot be read, and those beyond a quarter of the cache, are skipped. A later
    /// read of such a page returns the error.
    pub fn load_many(&self, pages: &[PageId]) {
        let missing = || pages.iter().copied().filter(|page| !self.contains(*page));
        if missing().nth(1).is_none() {
            return;
        }
        let Ok(file) = self.file() else { return };
        let Some(env) = self.env.get() else { return };
        // Do not flood a small cache.
        let most = to_usize(self.frames_reachable().div_ceil(4));
        let outcome = self.queues.with(&**env, |queue| {
            let wanted: Vec<_> = missing().take(most).collect();
            self.overlay.prefetch_pieces(&wanted, queue);
            let mut loading: Vec<Option<WriteGuard<'_>>> = Vec::new();
            let (mut done, mut buffers) = (Vec::with_capacity(DEPTH), Vec::new());
            for page in wanted.into_iter().filter(|page| !self.contains(*page)) {
                if queue.pending() >= DEPTH {
                    queue.wait(1, &mut done);
                    self.finish_loads(&mut loading, &mut done, &mut buffers);
                }
                let Ok(frame) = self.allocate_frame() else { break };
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
        // Without a queue, later reads load the pages one by one.
        drop(outcome);
    }

    /// Publishes the pages whose reads completed, and keeps their buffers for reuse.
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
        let location = (self.label.as_str(), self.offset(page));
        let units = self.overlay.patch(page, completion.buffer.as_mut_slice(), location);
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
