//! Copies of a database that were made while others worked in it, and what else can be made of what a life leaves:
//! what `salvage` finds, and whoever opens it only to read.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use foreshore::{Database, Error, Result, Salvage, SalvageSource};
use foreshore_env::{disk::Disk, sync::Arc};
use foreshore_testkit::{FaultyDisk, history::State};

use super::{
    Score,
    attempt::{Attempt, Told},
    client::TABLES,
    judge::{self, Table},
    plan::Plan,
    scratch::Lifetimes,
};

/// A backup that somebody made, or tried to.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) path: PathBuf,
    /// The next place in the order of commits when it was begun.
    pub(super) from: u64,
    /// It was told to be there.
    pub(super) made: bool,
}

/// Judges copies that were made in a life: each has what was durable before it was begun, and of the rest what was
/// committed up to some moment. One that failed is no database, unless the power failed in its last moment.
pub(super) fn judge(
    plan: &Plan,
    disk: &FaultyDisk,
    copies: &[Copy],
    attempts: &[Attempt],
    before: &State,
) -> std::result::Result<(), String> {
    for copy in copies {
        let name = copy.path.display();
        let opened = plan.builder(disk).create(false).open(&copy.path);
        match opened {
            Ok(db) => {
                is_of_one_moment(&db, copy, attempts, before).map_err(|why| format!("copy {name}: {why}"))?
            }
            Err(Error::NotADatabase { .. }) if !copy.made => {}
            // Hardly anything could be made there.
            Err(Error::Io { .. }) if !copy.made && files(disk, copy).all(|file| file.ends_with("LOCK")) => {}
            Err(error) => return Err(format!("opening copy {name} (made: {}): {error}", copy.made)),
        }
    }
    Ok(())
}

fn files(disk: &FaultyDisk, copy: &Copy) -> impl Iterator<Item = PathBuf> {
    disk.files().into_iter().filter(|file| file.starts_with(&copy.path))
}

fn is_of_one_moment(
    db: &Database,
    copy: &Copy,
    attempts: &[Attempt],
    before: &State,
) -> std::result::Result<(), String> {
    let failed = |error: Error| error.to_string();
    // Who is prepared there has decided elsewhere, or not at all.
    for prepared in db.prepared().map_err(failed)? {
        db.rollback_prepared(&prepared.global_id).map_err(failed)?;
    }
    judge::sound(db)?;
    let found = judge::tables(db)?;
    // Whose client had been told for certain: somebody has drawn a place since, and before the backup was begun.
    let told = |attempt: &Attempt| match attempt.told {
        Told::Durable if attempt.known < copy.from => Told::Durable,
        Told::Durable | Told::Lazy => Told::Lazy,
        Told::Unknown | Told::Prepared | Told::Deciding => Told::Unknown,
        Told::Undone | Told::Refused => Told::Refused,
    };
    // Of those that only read nothing is there by which one could see whether they came before.
    let writers = attempts.iter().filter(|attempt| attempt.row.is_some());
    let attempts = writers.map(|attempt| Attempt { told: told(attempt), ..attempt.clone() }).collect();
    let mut lives = Lifetimes::new(before);
    let state =
        judge::history(attempts, before.clone(), false, &found[2], &mut lives, &mut Score::default())?;
    for (number, (name, found)) in (0..).zip(TABLES.iter().zip(&found)) {
        judge::compare(name, found, number, &state)?;
    }
    db.close().map_err(failed)
}

/// What is found in the tables without a change of the disk; `None` where prepared transactions are in the way.
pub(super) struct Seen {
    read_only: Option<[Table; 3]>,
    salvaged: Option<[Table; 3]>,
}

/// Looks at what a life has left before anybody opens it to write.
pub(super) fn look(plan: &Plan, disk: &FaultyDisk) -> std::result::Result<Seen, String> {
    let copy = disk.after_kill();
    let read_only = read_only(plan, &copy).map_err(|error| format!("opened only to be read: {error}"))?;
    for file in disk.files() {
        if disk.read_file(&file).ok() != copy.read_file(&file).ok() {
            return Err(format!("opened only to be read, it changed {}", file.display()));
        }
    }
    if copy.files() != disk.files() {
        return Err("opened only to be read, it made or removed files".to_owned());
    }
    Ok(Seen { read_only, salvaged: salvaged(copy)? })
}

fn read_only(plan: &Plan, disk: &FaultyDisk) -> Result<Option<[Table; 3]>> {
    let db = plan.builder(disk).read_only(true).open("/db")?;
    let is_free = db.prepared()?.is_empty();
    let tables = judge::tables_or_none(&db);
    db.close()?;
    if is_free { tables.map(Some) } else { Ok(None) }
}

fn salvaged(disk: FaultyDisk) -> std::result::Result<Option<[Table; 3]>, String> {
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let failed = |error: Error| format!("salvage: {error}");
    let salvage = Salvage::on(&disk, Path::new("/db"), |_| ControlFlow::Continue(())).map_err(failed)?;
    if salvage.source() != SalvageSource::Recovered {
        return Err(format!("salvage cannot open it: {:?}", salvage.failure()));
    }
    let (damaged, count) = salvage.damaged_pages();
    if count > 0 || salvage.pages_called_free() > 0 || !salvage.catalog_is_complete() {
        return Err(format!(
            "salvage finds damage: {damaged:?}, {} pages called free, catalogue complete: {}",
            salvage.pages_called_free(),
            salvage.catalog_is_complete()
        ));
    }
    let mut found = [const { Table::new() }; 3];
    for table in salvage.tables() {
        if !table.lost.is_empty() {
            return Err(format!("salvage has lost {:?} of {}", table.lost, table.name));
        }
        let place = TABLES.iter().position(|name| *name == table.name);
        let mut rows = Table::new();
        let read = salvage.rows(&table, |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        read.map_err(failed)?;
        if let Some(place) = place {
            found[place] = rows;
        }
    }
    Ok((salvage.undecided() == 0).then_some(found))
}

impl Seen {
    /// Whether that is what is there once it is recovered.
    pub(super) fn compare(&self, found: &[Table; 3]) -> std::result::Result<(), String> {
        for (who, seen) in [("whoever only reads", &self.read_only), ("salvage", &self.salvaged)] {
            let Some(seen) = seen else { continue };
            for (name, (seen, found)) in TABLES.iter().zip(seen.iter().zip(found)) {
                if seen != found {
                    return Err(format!(
                        "what {who} found in table {name} {}",
                        judge::difference(seen, found)
                    ));
                }
            }
        }
        Ok(())
    }
}
