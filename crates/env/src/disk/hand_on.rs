//! Disks in front of others.

/// In an `impl` of [`Disk`](crate::disk::Disk) or [`DiskFile`](crate::disk::DiskFile) for what stands in front of
/// another one: hands these calls on to a field. What the trait has a default for is not handed on unless it is named.
///
/// ```text
/// impl Disk for SlowDisk {
///     hand_on!(inner: create_directory, sync_directory, list, rename, remove, exists, lies_in, lock, lock_shared);
///     // and what this one does itself
/// }
/// ```
#[macro_export]
macro_rules! hand_on {
    ($field:tt: $($call:ident),+) => { $($crate::hand_on!(@$call $field);)+ };

    (@open $f:tt) => {
        $crate::hand_on!(=$f open(path: &::std::path::Path, mode: $crate::disk::OpenMode)
            -> ::std::sync::Arc<dyn $crate::disk::DiskFile>);
    };
    (@create_directory $f:tt) => { $crate::hand_on!(=$f create_directory(path: &::std::path::Path) -> ()); };
    (@sync_directory $f:tt) => { $crate::hand_on!(=$f sync_directory(path: &::std::path::Path) -> ()); };
    (@list $f:tt) => { $crate::hand_on!(=$f list(path: &::std::path::Path) -> ::std::vec::Vec<::std::path::PathBuf>); };
    (@rename $f:tt) => { $crate::hand_on!(=$f rename(from: &::std::path::Path, to: &::std::path::Path) -> ()); };
    (@remove $f:tt) => { $crate::hand_on!(=$f remove(path: &::std::path::Path) -> ()); };
    (@exists $f:tt) => { $crate::hand_on!(=$f exists(path: &::std::path::Path) -> bool); };
    (@lies_in $f:tt) => {
        $crate::hand_on!(=$f lies_in(path: &::std::path::Path, directory: &::std::path::Path) -> bool);
    };
    (@lock $f:tt) => {
        $crate::hand_on!(=$f lock(path: &::std::path::Path)
            -> ::std::option::Option<::std::boxed::Box<dyn Send + Sync>>);
    };
    (@lock_shared $f:tt) => {
        $crate::hand_on!(=$f lock_shared(path: &::std::path::Path)
            -> ::std::option::Option<::std::boxed::Box<dyn Send + Sync>>);
    };

    (@read_at $f:tt) => { $crate::hand_on!(=$f read_at(buffer: &mut [u8], offset: u64) -> usize); };
    (@write_all_at $f:tt) => { $crate::hand_on!(=$f write_all_at(bytes: &[u8], offset: u64) -> ()); };
    (@sync $f:tt) => { $crate::hand_on!(=$f sync() -> ()); };
    (@len $f:tt) => { $crate::hand_on!(=$f len() -> u64); };
    (@is_private $f:tt) => { $crate::hand_on!(=$f is_private() -> bool); };
    (@set_len $f:tt) => { $crate::hand_on!(=$f set_len(bytes: u64) -> ()); };
    (@allocate $f:tt) => { $crate::hand_on!(=$f allocate(range: ::std::ops::Range<u64>) -> ()); };

    (=$field:tt $call:ident($($name:ident: $given:ty),*) -> $answer:ty) => {
        fn $call(&self, $($name: $given),*) -> ::std::io::Result<$answer> {
            self.$field.$call($($name),*)
        }
    };
}
