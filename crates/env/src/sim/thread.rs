//! Threads of the simulated machine.
#![allow(clippy::disallowed_types)]

use std::{
    cell::{OnceCell, UnsafeCell},
    fmt, io,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

pub use std::thread::Result;

use super::{
    atomic::{AtomicU32, Ordering},
    calls::{self, futex_wait, futex_wake},
    kernel,
    time::{Duration, Instant},
    unwinding,
};
pub use super::{
    calls::yield_now,
    local::{AccessError, LocalKey},
    place::{available_parallelism, pin, processor, processors},
    unwinding::panicking,
};

/// Bytes of stack of a thread that asks for nothing else.
const STACK_BYTES: usize = 512 << 10;

/// What tells threads apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(usize);

/// A handle to a thread.
#[derive(Clone, Debug)]
pub struct Thread(Arc<Identity>);

#[derive(Debug)]
struct Identity {
    id: ThreadId,
    name: Option<String>,
    /// 1 when somebody has unparked the thread and it has not yet noticed.
    token: AtomicU32,
}

impl Thread {
    fn new(id: usize, name: Option<String>) -> Thread {
        Thread(Arc::new(Identity { id: ThreadId(id), name, token: AtomicU32::new(0) }))
    }

    /// Tells this thread from all others.
    pub fn id(&self) -> ThreadId {
        self.0.id
    }

    /// The name given by [`Builder::name`].
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Lets the thread's current or next [`park`] return.
    #[track_caller]
    pub fn unpark(&self) {
        if self.0.token.swap(1, Ordering::Release) == 0 {
            futex_wake(&self.0.token, 1);
        }
    }
}

crate::simulated_thread_local! {
    /// The thread itself; made late for the first thread of a simulation and for threads outside of all simulations.
    static CURRENT: OnceCell<Thread> = OnceCell::new();
}

/// This thread's handle.
pub fn current() -> Thread {
    let make = || Thread::new(kernel::with(|kernel| kernel.current()).unwrap_or(usize::MAX), None);
    CURRENT.with(|current| current.get_or_init(make).clone())
}

/// Sleeps until [`Thread::unpark`], or returns at once if that has been called already.
#[track_caller]
pub fn park() {
    let thread = current();
    while thread.0.token.swap(0, Ordering::Acquire) == 0 {
        futex_wait(&thread.0.token, 0, None);
    }
}

/// Sleeps in virtual time, to its end if the duration goes beyond.
#[track_caller]
pub fn sleep(duration: Duration) {
    let end = Instant::from_picoseconds(kernel::END_OF_TIME);
    calls::sleep_until(Instant::now().checked_add(duration).unwrap_or(end));
}

/// What a thread leaves behind.
struct Packet<T> {
    /// 1 when the thread is over.
    over: AtomicU32,
    /// Written by the thread before it is over, taken by the thread that joins it afterwards.
    result: UnsafeCell<Option<Result<T>>>,
}

// SAFETY: `over` passes the result from one thread to the other.
unsafe impl<T: Send> Sync for Packet<T> {}

impl<T> Packet<T> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) == 1
    }

    #[track_caller]
    fn wait(&self) -> Result<T> {
        while !self.is_over() {
            futex_wait(&self.over, 0, None);
        }
        // SAFETY: the thread is over, and the one handle is used up by this call.
        let result = unsafe { &mut *self.result.get() };
        result.take().expect("a thread leaves its result")
    }
}

/// Starts a thread. `scope` hears of its end.
fn start<'f, T: Send + 'f>(
    builder: Builder,
    f: impl FnOnce() -> T + Send + 'f,
    scope: Option<Arc<ScopeData>>,
) -> io::Result<(Thread, Arc<Packet<T>>)> {
    let packet = Arc::new(Packet { over: AtomicU32::new(0), result: UnsafeCell::new(None) });
    let also = Arc::clone(&packet);
    let id = kernel::with(|kernel| kernel.reserve())
        .ok_or_else(|| io::Error::other("threads start inside of a simulation only"))?;
    let thread = Thread::new(id, builder.name.clone());
    let itself = thread.clone();
    let body: Box<dyn FnOnce() + 'f> = Box::new(move || {
        CURRENT.with(|current| current.set(itself)).expect("a thread begins here");
        let result = catch_unwind(AssertUnwindSafe(f));
        if result.is_err()
            && let Some(scope) = &scope
        {
            scope.panicked.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: nobody looks at the result before `over` is set.
        unsafe { *also.result.get() = Some(result) };
        calls::end_locals();
        kernel::with(|kernel| kernel.retire());
        also.over.store(1, Ordering::Release);
        futex_wake(&also.over, usize::MAX);
        // A result that nobody wants goes before the scope may end.
        drop(also);
        if let Some(scope) = scope {
            scope.leave();
        }
    });
    // SAFETY: what the body borrows outlives it: a scope waits for its threads, and elsewhere 'f is 'static.
    let body = unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'f>, Box<dyn FnOnce() + 'static>>(body) };
    calls::start(id, builder.name, builder.stack_bytes.max(STACK_BYTES), body)?;
    Ok((thread, packet))
}

/// How to start a thread.
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
    stack_bytes: usize,
}

impl Builder {
    /// A thread without name.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the thread.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Wishes for a larger stack than usual.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_bytes = bytes;
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// There is no memory for its stack, or no simulation runs.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (thread, packet) = start(self, f, None)?;
        Ok(JoinHandle { thread, packet })
    }

    /// Starts a thread that may borrow what outlives the scope.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.data.running.fetch_add(1, Ordering::Relaxed);
        match start(self, f, Some(Arc::clone(&scope.data))) {
            Ok((thread, packet)) => {
                Ok(ScopedJoinHandle { thread, packet, scope: Arc::clone(&scope.data), _scope: PhantomData })
            }
            Err(error) => {
                scope.data.leave();
                Err(error)
            }
        }
    }
}

/// Starts a thread.
///
/// # Panics
/// When [`Builder::spawn`] would fail.
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(f).expect("failed to spawn thread")
}

/// The right to wait for a thread; dropping it lets the thread go on alone.
pub struct JoinHandle<T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
}

impl<T> JoinHandle<T> {
    /// The thread.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Whether the thread is over.
    pub fn is_finished(&self) -> bool {
        self.packet.is_over()
    }

    /// Waits for the thread.
    ///
    /// # Errors
    /// The thread panicked; the error is what it panicked with.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        self.packet.wait()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

/// What the threads of a scope share.
#[derive(Default)]
struct ScopeData {
    /// Threads that are not over.
    running: AtomicU32,
    /// Those that have panicked and nobody was told.
    panicked: AtomicU32,
}

impl ScopeData {
    fn leave(&self) {
        if self.running.fetch_sub(1, Ordering::Release) == 1 {
            futex_wake(&self.running, usize::MAX);
        }
    }

    fn wait(&self) {
        loop {
            match self.running.load(Ordering::Acquire) {
                0 => return,
                running => futex_wait(&self.running, running, None),
            }
        }
    }
}

/// Where threads that borrow are started. See [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<ScopeData>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").finish_non_exhaustive()
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// The right to wait for a thread of a scope, which waits for it in any case.
pub struct ScopedJoinHandle<'scope, T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
    scope: Arc<ScopeData>,
    _scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// The thread.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Whether the thread is over.
    pub fn is_finished(&self) -> bool {
        self.packet.is_over()
    }

    /// Waits for the thread.
    ///
    /// # Errors
    /// The thread panicked; the error is what it panicked with.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        let result = self.packet.wait();
        if result.is_err() {
            self.scope.panicked.fetch_sub(1, Ordering::Relaxed);
        }
        result
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    ///
    /// # Panics
    /// When [`Builder::spawn_scoped`] would fail.
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Builder::new().spawn_scoped(self, f).expect("failed to spawn thread")
    }
}

/// Runs `f`, which may start threads that borrow, and waits for all of them.
///
/// # Panics
/// When `f` panics, or one of the threads did.
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope { data: Arc::default(), scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.data.wait();
    match result {
        Err(panic) => {
            unwinding::started();
            resume_unwind(panic)
        }
        Ok(_) if scope.data.panicked.load(Ordering::Relaxed) > 0 => panic!("a scoped thread panicked"),
        Ok(value) => value,
    }
}
