//! What is refused before it runs, and the cache.

use std::fs;
use std::process::{Command, Stdio};

use cofferdam::guest::{ComponentLoader, LoaderStats};
use cofferdam::sandbox::LoadError;
use cofferdam::sandbox::compile::{COMPILE_VERB, Compiler};
use cofferdam::sandbox::scan::ScanLimits;
use cofferdam_dataflow::guest::GuestFactory;

use super::guests::{Bench, Wat, compiler, info};

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// A component around the core module with these fields.
fn around(fields: &str) -> Vec<u8> {
    component(&format!("(component (core module {fields}))"))
}

/// `levels` nested components, each of which instantiates the next one `times` times.
fn bomb(levels: usize, times: usize, innermost: &str) -> Vec<u8> {
    let mut text = innermost.to_owned();
    for _ in 0..levels {
        text = format!("(component {text} {})", "(instance (instantiate 0))".repeat(times));
    }
    component(&text)
}

fn code(bench: &Bench, bytes: &[u8]) -> String {
    match bench.refused(bytes) {
        LoadError::TooComplex { what, found, limit } => {
            assert!(found > limit);
            format!("component-too-complex {what}")
        }
        other => other.code().to_owned(),
    }
}

#[test]
fn an_operator_is_scanned_compiled_and_described() {
    let bench = Bench::new();
    let loaded = bench.load(&Wat::default());
    let summary = loaded.summary();
    assert_eq!(summary.interface, "cofferdam:operator@0.1.0");
    assert_eq!(summary.exports, ["cofferdam:operator/guest@0.1.0"]);
    assert_eq!((summary.counts.core_modules, summary.counts.core_instances), (1, 1));
    assert_eq!(loaded.descriptor().inputs[0].name, "in");
    assert_eq!(loaded.descriptor().outputs, ["out"]);
    assert_eq!(loaded.descriptor().slots[0].codec, "raw");
    assert_eq!(summary.digest.len(), 64);
}

#[test]
fn a_small_component_cannot_ask_for_many_instances() {
    let bench = Bench::new();
    let module = "(component (core module) (core instance (instantiate 0)))";
    let bytes = bomb(7, 10, module);
    assert!(bytes.len() < 1200, "{}", bytes.len());
    assert_eq!(code(&bench, &bytes), "component-too-complex core-instances");
    // Without a core module, fewer levels of more instances, and components that are reached by aliases and exports.
    assert_eq!(code(&bench, &bomb(6, 20, "(component)")), "component-too-complex component-instances");
    let exported =
        "(component (component $c (core module) (core instance (instantiate 0))) (export $d \"d\" (component $c)) INSTANCES)";
    let text = exported.replace("INSTANCES", &"(instance (instantiate $d))".repeat(65));
    assert_eq!(code(&bench, &component(&text)), "component-too-complex core-instances");
    let aliased = "(component $top (component $c (core module) (core instance (instantiate 0)))
        (component (alias outer $top $c (component $d)) INSTANCES))";
    let text = aliased.replace("INSTANCES", &"(instance (instantiate $d))".repeat(65));
    assert_eq!(code(&bench, &component(&text)), "component-too-complex core-instances");
    let passed = "(component (component $c (import \"x\" (component))) (component $e) (instance (instantiate $c (with \"x\" (component $e)))))";
    assert_eq!(code(&bench, &component(passed)), "component-invalid");
    let taken = "(component (component $c (component $e) (export \"e\" (component $e))) (instance $i (instantiate $c)) (alias export $i \"e\" (component)))";
    assert_eq!(code(&bench, &component(taken)), "component-invalid");
    assert_eq!(bench.loader.stats().compiled, 0);
}

#[test]
fn what_would_take_the_compiler_long_is_refused_before() {
    let bench = Bench::new();
    let is = |bytes: Vec<u8>, want: &str| assert_eq!(code(&bench, &bytes), format!("component-too-complex {want}"));
    is(component(&format!("(component {})", "(core module)".repeat(33))), "core-modules");
    is(around(&format!("(func {} {})", "(loop ".repeat(1001), ")".repeat(1001))), "control-nesting");
    is(around(&"(func)".repeat(50_001)), "functions");
    is(around(&format!("(func {})", "nop ".repeat(600_000))), "body-bytes");
    is(around(&format!("(func (block i32.const 0 br_table {} ))", "0 ".repeat(100_002))), "branch-targets");
    is(around(&format!("(func (local {}))", "i32 ".repeat(50_001))), "locals");
    is(around(&"(global i32 (i32.const 0))".repeat(1001)), "globals");
    is(around(&format!("(func (export \"{}\"))", "x".repeat(257))), "name-bytes");
    is(component(&format!("{}{}", "(component ".repeat(10), ")".repeat(10))), "nesting");
    is(component(&format!("(component {})", "(type (func))".repeat(10_001))), "types");
    assert_eq!(bench.loader.stats().compiled, 0);
}

#[test]
fn types_that_double_are_invalid() {
    let bench = Bench::new();
    let mut text = String::from("(type $t0 (tuple u64 u64))");
    for level in 1..=40 {
        text += &format!("(type $t{level} (tuple $t{} $t{}))", level - 1, level - 1);
    }
    assert_eq!(code(&bench, &component(&format!("(component {text})"))), "component-invalid");
}

#[test]
fn types_nested_deep_do_not_overflow_the_stack() {
    // A component type within a component type, and so on: 0x41 opens one, with one declaration, of a type.
    let bench = Bench::new();
    for opening in [0x41, 0x42] {
        let mut types = vec![1];
        types.extend([opening, 1, 1].repeat(1_000_000));
        let bytes = [b"\0asm\x0d\0\x01\0\x07".to_vec(), leb(types.len()), types].concat();
        assert_eq!(code(&bench, &bytes), "component-too-complex type-nesting");
    }
    let nested = |levels: usize| component(&format!("(component {}{})", "(type (component ".repeat(levels), "))".repeat(levels)));
    assert_eq!(code(&bench, &nested(33)), "component-too-complex type-nesting");
    assert_eq!(code(&bench, &nested(32)), "world-mismatch");
}

#[test]
fn long_chains_of_types_do_not_overflow_the_stack() {
    let bench = Bench::new();
    for link in ["(list $tPREVIOUS)", "(option $tPREVIOUS)", "(tuple $tPREVIOUS)", "(result $tPREVIOUS)"] {
        let mut text = String::from("(component (type $t0 (list u8))");
        for level in 1..9_000 {
            text += &format!("(type $t{level} {})", link.replace("PREVIOUS", &(level - 1).to_string()));
        }
        text += r#"(import "cofferdam:operator/logging@0.1.0" (instance $l))
            (core module $m (memory (export "memory") 1) (func (export "f") (param i32 i32) (result i32) unreachable)
                (func (export "r") (param i32 i32 i32 i32) (result i32) unreachable))
            (core instance $i (instantiate $m))
            (func $f (param "x" (list $t8999)) (canon lift (core func $i "f") (memory $i "memory") (realloc (func $i "r"))))
            (instance $e (export "f" (func $f)))
            (export "cofferdam:operator/guest@0.1.0" (instance $e)))"#;
        let text = text.replace(
            "(result i32) unreachable)
",
            "unreachable)
",
        );
        let refused = bench.refused(&component(&text));
        assert!(matches!(refused.code(), "component-invalid" | "world-mismatch"), "{refused}");
    }
}

fn leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push((value & 127) as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[test]
fn what_is_no_component_is_named() {
    let bench = Bench::new();
    let refused = |bytes: &[u8]| bench.refused(bytes).to_string();
    assert!(refused(&component("(module)")).contains("found a core module"));
    assert!(refused(b"(component)").contains("found the text format"));
    assert!(refused(b"").contains("found an empty file"));
    assert!(refused(b"#!/bin/sh").contains("found something else"));
    let header = b"\0asm\x0d\0\x01\0";
    for tail in [&b"\x01\xff\xff\xff\xff\x0f"[..], b"\x01\x85\x80\x80\x80\x80\x80\x00", b"\x01\x10\0", b"\x63\x01\x00", b"\x00"] {
        let bytes = [header, tail].concat();
        assert_eq!(code(&bench, &bytes), "component-invalid", "{tail:?}");
    }
    let sound = Wat::default().component();
    for length in (8..sound.len()).step_by(7) {
        bench.refused(&sound[..length]);
    }
}

#[test]
fn damaged_components_never_panic() {
    let sound = Wat::default().component();
    for at in 0..sound.len() {
        for mask in [1, 0x80, 0xff] {
            let mut damaged = sound.clone();
            damaged[at] ^= mask;
            // Some damage is harmless. The scan only has to come to an end.
            let _ = cofferdam::sandbox::scan::scan(&damaged, &ScanLimits::default());
        }
    }
}

#[test]
fn a_large_file_is_not_read_to_its_end() {
    let bench = Bench::new();
    let path = bench.directory.path().join("large.wasm");
    fs::File::create(&path).unwrap().set_len(200 << 20).unwrap();
    match bench.loader.load_file(&path).err().unwrap() {
        LoadError::TooLarge { bytes, limit } => assert_eq!((bytes, limit), ((16 << 20) + 1, 16 << 20)),
        other => panic!("{other}"),
    }
    let error = bench.loader.load_file(&bench.directory.path().join("none.wasm")).err().unwrap();
    assert_eq!(error.code(), "io");
}

#[test]
fn machine_code_is_never_accepted() {
    let bench = Bench::new();
    bench.load(&Wat::default());
    let cached = fs::read_dir(bench.directory.path().join("cache")).unwrap().map(|entry| entry.unwrap().path());
    let entry = cached.into_iter().find(|path| path.extension().is_some()).unwrap();
    let artefact = fs::read(entry).unwrap().split_off(32);
    assert_eq!(code(&bench, &artefact), "precompiled-refused");
    // Whatever its header says.
    for at in [4, 7, 16, 40, 48] {
        let mut forged = artefact.clone();
        forged[at] ^= 0xff;
        assert_eq!(code(&bench, &forged), "precompiled-refused");
    }
}

#[test]
fn proposals_that_are_not_served_are_invalid() {
    let bench = Bench::new();
    for fields in [
        "(memory 1 1 shared)",
        "(memory i64 1)",
        "(memory 1) (memory 1)",
        "(func $f return_call $f)",
        "(tag)",
        "(type (struct))",
        "(func (param externref))",
        "(func (param v128 v128) (result v128) local.get 0 local.get 1 i8x16.relaxed_swizzle)",
        "(type $f (func)) (type $c (cont $f))",
        "(type $f (func)) (func (param (ref $f)))",
        "(memory 1 (pagesize 1))",
        "(func (param i64 i64 i64 i64) (result i64 i64) local.get 0 local.get 1 local.get 2 local.get 3 i64.add128)",
        "(global i32 (i32.add (i32.const 1) (i32.const 2)))",
    ] {
        assert_eq!(code(&bench, &around(fields)), "component-invalid", "{fields}");
    }
    for definition in ["(type (stream u8))", "(type (future))", "(core func (canon error-context.drop))", "(type (map u8 u8))"] {
        assert_eq!(code(&bench, &component(&format!("(component {definition})"))), "component-invalid", "{definition}");
    }
}

#[test]
fn all_denied_imports_are_named_with_a_hint_for_wasi() {
    let bench = Bench::new();
    let text = r#"(component (import "evil:thing/x@1.0.0" (instance)) (import "wasi:sockets/tcp@0.2.6" (instance))
        (import "cofferdam:operator/logging@0.1.0" (instance)) (import "cofferdam:operator/admin@0.1.0" (instance)))"#;
    let error = bench.refused(&component(text)).to_string();
    assert!(error.starts_with("import-denied: "), "{error}");
    for name in ["evil:thing/x@1.0.0", "wasi:sockets/tcp@0.2.6", "cofferdam:operator/admin@0.1.0", "wasm32-unknown-unknown"] {
        assert!(error.contains(name), "{error}");
    }
    assert!(!error.contains("logging"), "{error}");
}

#[test]
fn another_interface_version_is_named() {
    let bench = Bench::new();
    for (name, version) in [("types@0.2.0", "0.2.0"), ("types@1.0.0", "1.0.0"), ("types@0.1.0-rc.1", "0.1.0-rc.1")] {
        let error = bench.refused(&component(&format!(r#"(component (import "cofferdam:operator/{name}" (instance)))"#)));
        assert!(
            error.to_string().contains(&format!("built for cofferdam:operator@{version}, this host serves 0.1.x")),
            "{error}"
        );
    }
    let error = bench.refused(&component("(component)")).to_string();
    assert!(error.contains("does not export cofferdam:operator/guest"), "{error}");
}

#[test]
fn functions_with_another_signature_are_a_mismatch() {
    let bench = Bench::new();
    let wrong_import = r#"(component
        (import "cofferdam:operator/logging@0.1.0" (instance (export "log" (func (param "message" string)))))
        (instance $i) (export "cofferdam:operator/guest@0.1.0" (instance $i)))"#;
    let unknown_import = r#"(component
        (import "cofferdam:operator/logging@0.1.0" (instance (export "shout" (func))))
        (instance $i) (export "cofferdam:operator/guest@0.1.0" (instance $i)))"#;
    let no_functions = r#"(component (instance $i) (export "cofferdam:operator/guest@0.1.0" (instance $i)))"#;
    for text in [wrong_import, unknown_import, no_functions] {
        let error = bench.refused(&component(text));
        assert_eq!(error.code(), "world-mismatch", "{error}");
    }
}

#[test]
fn a_second_start_compiles_nothing() {
    let bench = Bench::new();
    let bytes = Wat::default().component();
    bench.loader.load(&bytes).unwrap();
    assert_eq!(bench.loader.stats(), LoaderStats { compiled: 1, cached: 0, rejected: 0 });
    let no_compiler = Compiler { program: "/nowhere".into(), ..compiler() };
    let second = ComponentLoader::new(&bench.directory.path().join("cache"), no_compiler, ScanLimits::default()).unwrap();
    let loaded = second.load(&bytes).unwrap();
    assert_eq!(second.stats(), LoaderStats { compiled: 0, cached: 1, rejected: 0 });
    assert!(bench.open_loaded(&loaded).is_ok());
}

#[test]
fn a_poisoned_cache_entry_is_compiled_anew() {
    let bench = Bench::new();
    let bytes = Wat::default().component();
    bench.loader.load(&bytes).unwrap();
    let cache = bench.directory.path().join("cache");
    let entry = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some()).unwrap();
    let mut poisoned = fs::read(&entry).unwrap();
    let middle = poisoned.len() / 2;
    poisoned[middle] ^= 1;
    fs::write(&entry, &poisoned).unwrap();
    let loaded = bench.loader.load(&bytes).unwrap();
    assert_eq!(bench.loader.stats(), LoaderStats { compiled: 2, cached: 0, rejected: 1 });
    assert!(bench.open_loaded(&loaded).is_ok());
    assert_ne!(fs::read(&entry).unwrap(), poisoned);
}

#[test]
fn what_the_host_does_not_serve_is_refused_when_loading() {
    // The slot's kind is the byte at 1160: 2 is a map.
    let bench = Bench::new();
    let map = Wat { fields: r#"(data (i32.const 1160) "\02")"#.into(), ..Wat::default() };
    let error = bench.refused(&map.component());
    assert_eq!(error.code(), "state-declaration", "{error}");
    let traps = Wat { describe: "unreachable", ..Wat::default() };
    assert_eq!(
        bench.refused(&traps.component()).to_string(),
        "guest-trap in load: wasm trap: wasm `unreachable` instruction executed"
    );
}

#[test]
fn an_operator_reads_its_configuration_and_its_surroundings() {
    // Traps unless the configuration is `{}` and the instance is number 3 of 4.
    let open = "(if (i32.or (i32.ne (i32.load16_u (local.get $config)) (i32.const 0x7d7b))
        (i32.or (i32.ne (local.get 4) (i32.const 3)) (i32.ne (local.get 5) (i32.const 4)))) (then unreachable)) (i32.const 4096)";
    let bench = Bench::new();
    assert!(bench.try_open(&Wat { open: open.into(), ..Wat::default() }).is_ok());
    let other = cofferdam::guest::GuestOptions { config: b"[]".to_vec(), limits: bench.limits.clone(), log: bench.log.clone() };
    let loaded = bench.load(&Wat { open: open.into(), ..Wat::default() });
    assert!(loaded.factory(other).open(&info()).is_err());
}

#[test]
fn the_compiler_process_limits_itself_before_it_reads_anything() {
    let mut child =
        Command::new(compiler().program).arg(COMPILE_VERB).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let path = format!("/proc/{}/limits", child.id());
    let limits = loop {
        let limits = fs::read_to_string(&path).unwrap();
        // The last one that is set.
        if limits.lines().any(|line| line.starts_with("Max open files") && line.split_whitespace().nth(3) == Some("16")) {
            break limits;
        }
        assert!(child.try_wait().unwrap().is_none(), "the child is gone");
        std::thread::yield_now();
    };
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(limit("Max address space"), "2147483648 2147483648");
    assert_eq!(limit("Max cpu time"), "30 31");
    assert_eq!(limit("Max core file size"), "0 0");
    assert_eq!(limit("Max file size"), "0 0");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stdout.ends_with(b"found an empty file"), "{:?}", output.stdout);
}

#[test]
fn a_component_that_many_load_at_once_is_compiled_once() {
    let bench = Bench::new();
    let bytes = Wat::default().component();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| bench.loader.load(&bytes).map(drop).unwrap());
        }
    });
    assert_eq!(bench.loader.stats(), LoaderStats { compiled: 1, cached: 3, rejected: 0 });
}
