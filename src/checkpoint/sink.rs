//! Where the bytes of a file go: to the disk, or beside those that are there.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use crate::error::{Error, ErrorKind};

/// Takes the bytes of a file in order.
pub(super) struct Sink {
    path: PathBuf,
    file: File,
    at: u64,
    /// For a file that is compared: what was read of it.
    read: Option<Vec<u8>>,
}

impl Sink {
    pub(super) fn new(path: &Path, file: File, compare: bool) -> Self {
        Self { path: path.into(), file, at: 0, read: compare.then(Vec::new) }
    }

    pub(super) fn take(&mut self, bytes: &[u8], tensor: &str) -> Result<(), Error> {
        self.at += bytes.len() as u64;
        let Some(read) = &mut self.read else {
            return self.file.write_all(bytes).map_err(|error| cannot_write(&self.path, &error));
        };
        read.resize(bytes.len(), 0);
        self.file.read_exact(read).map_err(|error| cannot_read(&self.path, &error))?;
        match read == bytes {
            true => Ok(()),
            false => Err(damaged(&self.path, &format!("{tensor} does not have the values of the plan and the seed"))),
        }
    }

    /// Zeros up to the offset `start`.
    pub(super) fn pad_to(&mut self, start: u64, tensor: &str) -> Result<(), Error> {
        match start.checked_sub(self.at) {
            None | Some(0) => Ok(()),
            Some(missing) => self.take(&vec![0; missing as usize], tensor),
        }
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }
}

/// A file that takes its name only when it is whole: it is written beside it, synced and renamed.
///
/// Its name while it is unfinished ends in `.partial`. It is locked, so that no two processes write it, and is removed on an error; one that a
/// killed process left is written anew.
pub(super) struct Unfinished {
    partial: PathBuf,
    path: PathBuf,
    finished: bool,
    /// Held until the unfinished name is gone.
    _lock: File,
}

impl Unfinished {
    pub(super) fn create(path: &Path) -> Result<(Self, File), Error> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".partial");
        let partial = path.with_file_name(name);
        let file = loop {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&partial);
            let file = file.map_err(|error| cannot_write(&partial, &error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(busy(path)),
                // A file system without locks.
                Err(TryLockError::Error(_)) => {}
            }
            // Another process may have given it its name between the two.
            if is_called(&file, &partial) {
                break file;
            }
        };
        let lock = file.try_clone().map_err(|error| cannot_write(&partial, &error))?;
        let this = Self { partial, path: path.into(), finished: false, _lock: lock };
        if path.exists() {
            return Err(busy(path));
        }
        // What a killed process left goes.
        if file.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            file.set_len(0).map_err(|error| cannot_write(&this.partial, &error))?;
        }
        Ok((this, file))
    }

    pub(super) fn finish(mut self, file: File) -> Result<(), Error> {
        file.sync_all().map_err(|error| cannot_write(&self.path, &error))?;
        if self.path.exists() {
            return Err(busy(&self.path));
        }
        fs::rename(&self.partial, &self.path).map_err(|error| cannot_write(&self.path, &error))?;
        self.finished = true;
        sync_folder(&self.path)
    }
}

/// Whether the file is still the one with this name.
#[cfg(unix)]
fn is_called(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(file), Ok(path)) => identity(file) == identity(path),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_called(_: &File, _: &Path) -> bool {
    true
}

fn busy(path: &Path) -> Error {
    Error::new(
        ErrorKind::File,
        format!("{} is being written by another process", path.display()),
        "wait for it, or choose another place",
    )
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// A small file, whole or not at all.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<(), Error> {
    let (unfinished, mut file) = Unfinished::create(path)?;
    file.write_all(text.as_bytes()).map_err(|error| cannot_write(path, &error))?;
    unfinished.finish(file)
}

/// Makes the new name last over a loss of power.
fn sync_folder(path: &Path) -> Result<(), Error> {
    #[cfg(unix)]
    {
        File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(|error| cannot_write(path, &error))?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

pub(super) fn cannot_write(path: &Path, error: &io::Error) -> Error {
    if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory)
        && let Some(file) = path.ancestors().find(|place| place.is_file())
    {
        let found = format!("{} is a file, and a folder is due there", file.display());
        return Error::new(ErrorKind::File, found, "give a folder, or the name of one that is not there yet");
    }
    let todo = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "make room and run it again: files that are complete are kept"
        }
        _ => "choose a place that can be written to",
    };
    Error::new(ErrorKind::File, format!("{} cannot be written: {error}", path.display()), todo)
}

pub(super) fn cannot_read(path: &Path, error: &io::Error) -> Error {
    if path.is_dir() {
        let found = format!("{} is a folder, and a file is due there", path.display());
        return Error::new(ErrorKind::File, found, "give the name of a file, or remove the folder");
    }
    Error::new(ErrorKind::File, format!("{} cannot be read: {error}", path.display()), "")
}

pub(super) fn damaged(path: &Path, what: &str) -> Error {
    Error::new(
        ErrorKind::File,
        format!("{} is there already and is damaged: {what}", path.display()),
        "remove it and run it again, or choose another place",
    )
}
