//! `--set`, of all subcommands that open somebody's database but `salvage`, which reads its files and needs no options.

use foreshore::Options;

use crate::{bench::parse_setting, output::CliError};

/// Options of the database, as they were given.
#[derive(clap::Args)]
pub(crate) struct Settings {
    /// An option of the database, with its unit: `--set pool_bytes=1GiB`. May be repeated.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, String)>,
}

impl Settings {
    /// These options, but for what was given.
    pub(crate) fn over(&self, mut options: Options) -> Result<Options, CliError> {
        for (name, value) in &self.settings {
            options.set(name, value)?;
        }
        Ok(options)
    }

    /// As [`Settings::over`], for a subcommand that makes no database, and knows whether it changes one.
    pub(crate) fn over_all_but_the_use(&self, needed: Options) -> Result<Options, CliError> {
        let (create, read_only) = (needed.create, needed.read_only);
        let options = self.over(needed)?;
        for (name, given, needed) in
            [("create", options.create, create), ("read_only", options.read_only, read_only)]
        {
            if given != needed {
                return Err(CliError::usage(
                    format!("{name}={given} is not for this subcommand, which needs {name}={needed}"),
                    format!("leave out --set {name}={given}"),
                ));
            }
        }
        Ok(options)
    }
}
