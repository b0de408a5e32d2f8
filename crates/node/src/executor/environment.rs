//! What tasks find in their environment, and which variables a submission may set.
//!
//! A worker's own environment holds secrets, so a task gets only what every program needs ([`BASE`]) and what the worker is
//! configured to pass on. Where only certain programs are allowed, variables that make those run other code are refused. That
//! list cannot be complete: an interpreter, a build tool or a shell among the allowed programs means that everything is allowed.

use std::ffi::OsString;

/// What every task gets, as far as the worker has it.
const BASE: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];
/// Never passed on: what opens the farm is not for its tasks, and what tasks get under such names is set for each.
const OWN: &str = "PRIMUS_";

/// Variables by which a program is made to load or run what it otherwise would not. A star stands for any end.
const LOADS_CODE: &[&str] = &[
    // The loader and the libraries that nearly every program has.
    "LD_*",
    "DYLD_*",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "NLSPATH",
    "OPENSSL_*",
    "KRB5_*",
    "TERMINFO*",
    "TERMCAP",
    // Where programs, their files and their configuration are found.
    "PATH",
    "HOME",
    "XDG_*",
    // Shells, and what other programs start for people.
    "ENV",
    "BASH_*",
    "BASHOPTS",
    "SHELLOPTS",
    "SHELL",
    "IFS",
    "PS4",
    "PROMPT_COMMAND",
    "CDPATH",
    "ZDOTDIR",
    "FPATH",
    "*EDITOR",
    "VISUAL",
    "*PAGER",
    "BROWSER",
    "LESS*",
    "*_ASKPASS",
    // Interpreters and their libraries.
    "PYTHON*",
    "PERL*",
    "RUBY*",
    "GEM_*",
    "BUNDLE_*",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_*",
    "NPM_CONFIG_*",
    "npm_config_*",
    "DENO_*",
    "JAVA_*",
    "_JAVA_*",
    "JDK_*",
    "CLASSPATH",
    "MAVEN_*",
    "GRADLE_*",
    "DOTNET_*",
    "CORECLR_*",
    "COMPlus_*",
    "MONO_*",
    "LUA_*",
    "R_HOME",
    "R_LIBS*",
    "R_PROFILE*",
    "R_ENVIRON*",
    "JULIA_*",
    "TCL*",
    "ERL_*",
    "ELIXIR_*",
    "GUILE_*",
    "PHPRC",
    "PHP_INI_*",
    "AWKPATH",
    "AWKLIBPATH",
    "VIM*",
    "EMACS*",
    "EXINIT",
    // Tools that run other programs.
    "GIT_*",
    "HGRCPATH",
    "*_SSH",
    "*_RSH",
    "RSYNC_*",
    "TAR_OPTIONS",
    "ZIP",
    "ZIPOPT",
    "MAKEFILES",
    "MAKEFLAGS",
    "GNUMAKEFLAGS",
    "CMAKE_*",
    "CARGO_*",
    "RUSTC*",
    "RUSTFLAGS",
    "RUSTDOC*",
    "GOFLAGS",
    "GOENV",
    "GOROOT",
    "GOPATH",
    "GOTOOL*",
    "CGO_*",
    "CC",
    "CXX",
    "GCC_*",
    "COMPILER_PATH",
];

/// What all tasks of this worker get: what every program needs, and what it is configured to pass on. `user_home` takes the
/// place of the worker's own `HOME` if tasks run as another user.
pub(super) fn common(
    own: impl Iterator<Item = (OsString, OsString)>,
    pass: &[String],
    user_home: Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let is_passed = |name: &str| BASE.contains(&name) || pass.iter().any(|pattern| fits(pattern, name));
    let own = own.filter(|(name, _)| name.to_str().is_some_and(|name| !name.starts_with(OWN) && is_passed(name)));
    let mut common: Vec<(OsString, OsString)> = own.collect();
    if let Some(home) = user_home {
        common.retain(|(name, _)| name != "HOME");
        common.push(("HOME".into(), home));
    }
    common
}

/// The first of these variables that would make an allowed program run other code, if there is one.
pub(super) fn loads_code<'a>(mut names: impl Iterator<Item = &'a str>, allowed: &[String]) -> Option<&'a str> {
    let is_allowed = |name: &str| allowed.iter().any(|pattern| fits(pattern, name));
    names.find(|name| LOADS_CODE.iter().any(|pattern| fits(pattern, name)) && !is_allowed(name))
}

/// Does a name fit this pattern, in which a star at either end stands for anything?
fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(beginning), _) => name.starts_with(beginning),
        (None, Some(end)) => name.ends_with(end),
        (None, None) => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pass: &[&str]) -> Vec<String> {
        let own =
            ["PATH", "HOME", "TZ", "AWS_SECRET_ACCESS_KEY", "LC_ALL", "LC_TIME", "PRIMUS_TOKEN", "SSH_AUTH_SOCK"];
        let own = own.iter().map(|name| (OsString::from(name), OsString::from("x")));
        let pass: Vec<String> = pass.iter().map(ToString::to_string).collect();
        common(own, &pass, None).into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn tasks_get_what_every_program_needs_and_what_is_passed_on() {
        assert_eq!(names(&[]), ["PATH", "HOME", "TZ"]);
        assert_eq!(names(&["LC_*"]), ["PATH", "HOME", "TZ", "LC_ALL", "LC_TIME"]);
        assert_eq!(names(&["SSH_AUTH_SOCK", "PRIMUS_TOKEN", "PRIMUS_*"]), ["PATH", "HOME", "TZ", "SSH_AUTH_SOCK"]);
        assert!(!names(&["*"]).iter().any(|name| name.starts_with("PRIMUS_")));
    }

    #[test]
    fn another_user_has_another_home() {
        let own = [("HOME", "/root"), ("TZ", "UTC")].map(|(name, value)| (name.into(), value.into()));
        let common = common(own.into_iter(), &[], Some("/home/batch".into()));
        assert_eq!(
            common,
            [("TZ", "UTC"), ("HOME", "/home/batch")].map(|(name, value)| (name.into(), value.into()))
        );
    }

    #[test]
    fn variables_that_load_code_are_found() {
        for name in [
            "LD_PRELOAD",
            "LD_AUDIT",
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "ENV",
            "PYTHONSTARTUP",
            "PYTHONPATH",
            "PERL5LIB",
            "PERL5OPT",
            "RUBYOPT",
            "NODE_OPTIONS",
            "GIT_SSH_COMMAND",
            "JAVA_TOOL_OPTIONS",
            "_JAVA_OPTIONS",
            "GCONV_PATH",
            "IFS",
            "SHELLOPTS",
            "PATH",
            "BASH_FUNC_ls%%",
            "SSH_ASKPASS",
            "X_ASKPASS",
            "HOME",
        ] {
            assert_eq!(loads_code([name].into_iter(), &[]), Some(name));
            assert_eq!(loads_code([name].into_iter(), &[name.to_owned()]), None);
        }
        for name in ["COLOUR", "LANG", "TZ", "LC_ALL", "OMP_NUM_THREADS", "DATABASE_URL", "TMPDIR"] {
            assert_eq!(loads_code([name].into_iter(), &[]), None, "{name}");
        }
        assert_eq!(loads_code(["COLOUR", "GIT_DIR"].into_iter(), &["GIT_*".to_owned()]), None);
    }
}
