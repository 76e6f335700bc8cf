use super::*;
use crate::yaml::read;

/// Makes an edit in the text, and checks that the result equals the edited value.
fn edited(text: &str, edit: &Edit) -> String {
    let changes = EditableText::read(text).unwrap().changes(edit, &Path::root()).unwrap();
    let new = apply_changes(text, changes).unwrap();
    let mut value = read("t", text).documents[0].value.clone();
    edit.apply(&mut value);
    let reading = read("t", &new);
    assert_eq!(reading.problems, [], "{new}");
    assert_eq!(reading.documents[0].value, value, "{new}");
    new
}

fn refused(text: &str, edit: &Edit) -> String {
    EditableText::read(text).unwrap().changes(edit, &Path::root()).unwrap_err().message
}

fn set(path: &str, value: &str) -> Edit {
    Edit::Set { path: Path::from_dotted(path), value: value.into() }
}

fn moved(from: &str, parent: &str, key: &str) -> Edit {
    Edit::Move { from: Path::from_dotted(from), parent: Path::from_dotted(parent), key: key.to_owned() }
}

fn insert(parent: &str, before: Option<&str>, key: &str, value: Value) -> Edit {
    let position = before.map_or(InsertPosition::End, |key| InsertPosition::Before(key.to_owned()));
    Edit::Insert { parent: Path::from_dotted(parent), position, key: key.to_owned(), value }
}

fn retire(path: &str) -> Edit {
    Edit::CommentOut { path: Path::from_dotted(path), comment: "gone".to_owned() }
}

#[test]
fn a_scalar_keeps_its_quotes_and_its_comment() {
    for (old, new) in [
        ("a: x # c\n", "a: n/1 # c\n"),
        ("a: 'x'\n", "a: 'n/1'\n"),
        ("a: \"x\"\n", "a: \"n/1\"\n"),
        ("{\"a\": \"x\"}\n", "{\"a\": \"n/1\"}\n"),
        ("a:   # c\n", "a: n/1   # c\n"),
        ("a: |-\n  x\nb: 1\n", "a: n/1\nb: 1\n"),
    ] {
        assert_eq!(edited(old, &set("a", "n/1")), new);
    }
    // Several lines stay lines, with their indicators and their indentation.
    let old = "a: |- # c\n   x\n\n   y\nb: 1\n";
    assert_eq!(edited(old, &set("a", "n:\n\n  1")), "a: |- # c\n   n:\n\n     1\nb: 1\n");
}

#[test]
fn a_key_is_renamed_in_place() {
    let rename = |path: &str, to: &str| Edit::Rename { path: Path::from_dotted(path), to: to.to_owned() };
    assert_eq!(edited("a:\n  b:   1 # x\n", &rename("a.b", "c")), "a:\n  c:   1 # x\n");
    assert_eq!(edited("a: {\"b\": 1}\n", &rename("a.b", "c")), "a: {\"c\": 1}\n");
}

#[test]
fn an_entry_moves_with_its_comments_and_its_lines() {
    let text = "\
from:
  # above
  # and above
  b:  # beside
    - x: 1

      # inside
    - y: |
        text
          more
    # below, and deeper
  c: 1
to:
    here:
        a: 1

# of d
d: 1
";
    let expected = "\
from:
  c: 1
to:
    here:
        a: 1
        # above
        # and above
        e:  # beside
          - x: 1

            # inside
          - y: |
              text
                more
          # below, and deeper

# of d
d: 1
";
    assert_eq!(edited(text, &moved("from.b", "to.here", "e")), expected);
}

#[test]
fn an_emptied_map_becomes_braces() {
    let text = "from: # all\n  b: 1 # one\nto: {} # none\n";
    assert_eq!(edited(text, &moved("from.b", "to", "b")), "from: {} # all\nto: # none\n  b: 1 # one\n");
    let text = "from:\n  b: 1\nto:\nz: 1\n";
    assert_eq!(edited(text, &moved("from.b", "to", "b")), "from: {}\nto:\n  b: 1\nz: 1\n");
    let text = "to: ~ # none\nfrom: {b: 1}\n";
    assert_eq!(edited(text, &moved("from.b", "to", "b")), "to: # none\n  b: 1\nfrom: {}\n");
}

#[test]
fn entries_move_in_and_out_of_flow_style() {
    for (old, new) in [
        ("from: {a: 1, b: 'x', c: 3}\nto:\n  d: 1\n", "from: {a: 1, c: 3}\nto:\n  d: 1\n  b: 'x'\n"),
        ("from: {b: [1, 2]}\nto: {d: 1}\n", "from: {}\nto: {d: 1, b: [1, 2]}\n"),
        (
            "from:\n  # above\n  b: x # beside\n  a: 1\nto: {d: 1}\n",
            "from:\n  # above\n  # beside\n  a: 1\nto: {d: 1, b: x}\n",
        ),
        ("from:\n  b:\n  - x: 1 # one\n  - \"#\"\nto: {d: 1}\n", "from: {}\n  # one\nto: {d: 1, b: [{x: 1}, \"#\"]}\n"),
        ("from:\n  b: a,b\n  a: 1\nto: {d: 1}\n", "from:\n  a: 1\nto: {d: 1, b: \"a,b\"}\n"),
        ("{from: {b: 1}, to: {}}\n", "{from: {}, to: {b: 1}}\n"),
        (
            "from: {\n  a: 1, # one\n  b: 2 # two\n}\nto: {\n  d: 1 # last\n}\n",
            "from: {\n  a: 1 # one\n  # two\n}\nto: {\n  d: 1, # last\n  b: 2\n}\n",
        ),
    ] {
        assert_eq!(edited(old, &moved("from.b", "to", "b")), new, "{old}");
    }
}

#[test]
fn edited_json_remains_json() {
    let text = "{\n  \"from\": {\n    \"a\": 1,\n    \"b\": \"x\"\n  },\n  \"to\": {\n    \"d\": 1\n  }\n}\n";
    let new = edited(text, &moved("from.b", "to", "b"));
    assert_eq!(new, "{\n  \"from\": {\n    \"a\": 1\n  },\n  \"to\": {\n    \"d\": 1,\n    \"b\": \"x\"\n  }\n}\n");
    let new = edited(&new, &insert("to", Some("d"), "c", serde_json::json!({"k": "v"})));
    assert!(new.contains("{\n    \"c\": {\"k\": \"v\"},\n    \"d\": 1,\n"), "{new}");
    serde_json::from_str::<Value>(&new).unwrap();
    serde_json::from_str::<Value>(&edited(&new, &retire("to"))).unwrap();
}

#[test]
fn an_entry_is_put_in_with_the_indentation_around_it() {
    let text = "a:\n    # of b\n    b: 1 # beside\n    # after b\n\nz: 1\n";
    assert_eq!(
        edited(text, &insert("a", Some("b"), "m", "x".into())),
        "a:\n    m: x\n    # of b\n    b: 1 # beside\n    # after b\n\nz: 1\n"
    );
    assert_eq!(
        edited(text, &insert("a", None, "m", serde_json::json!({"k": {"l": []}}))),
        "a:\n    # of b\n    b: 1 # beside\n    m:\n        k:\n            l: []\n    # after b\n\nz: 1\n"
    );
    assert_eq!(edited("a: {b: 1}\n", &insert("a", Some("b"), "m", "x y".into())), "a: {m: \"x y\", b: 1}\n");
    assert_eq!(edited("a:\r\n  b: 1\r\n", &insert("a", None, "m", "x".into())), "a:\r\n  b: 1\r\n  m: x\r\n");
    assert_eq!(
        edited(
            "- a:\n    b: 1\n",
            &Edit::Insert {
                parent: Path::root().index(0).key("a"),
                position: InsertPosition::End,
                key: "m".to_owned(),
                value: 1.into(),
            }
        ),
        "- a:\n    b: 1\n    m: 1\n"
    );
}

#[test]
fn an_entry_is_put_right_after_another() {
    let after = |key: &str| Edit::Insert {
        parent: Path::from_dotted("a"),
        position: InsertPosition::After(key.to_owned()),
        key: "m".to_owned(),
        value: "x".into(),
    };
    for (old, new) in [
        (
            "a:\n  b: 1 # b\n    # of b\n\n  # of c\n  c: 2\n",
            "a:\n  b: 1 # b\n    # of b\n  m: x\n\n  # of c\n  c: 2\n",
        ),
        ("a:\n  b: 1\n# end\n", "a:\n  b: 1\n  m: x\n# end\n"),
        ("a:\n  c: 1\n", "a:\n  c: 1\n  m: x\n"),
        ("a: {b: 1, c: 2}\n", "a: {b: 1, m: x, c: 2}\n"),
        ("a: {c: 2, b: 1}\n", "a: {c: 2, b: 1, m: x}\n"),
        ("a: {b: 1 ,c: 2}\n", "a: {b: 1 , m: x,c: 2}\n"),
        ("a: {b: 1, # b\n  c: 2}\n", "a: {b: 1, m: x, # b\n  c: 2}\n"),
        ("a: {\n  b: 1, # b\n  # of c\n  c: 2\n}\n", "a: {\n  b: 1, # b\n  m: x,\n  # of c\n  c: 2\n}\n"),
        ("a: {\n  b: 1, c: 2\n}\n", "a: {\n  b: 1, m: x, c: 2\n}\n"),
        ("a: {\n  b: 1 # b\n  , c: 2\n}\n", "a: {\n  b: 1 # b\n  , m: x, c: 2\n}\n"),
    ] {
        assert_eq!(edited(old, &after("b")), new, "{old}");
    }
}

#[test]
fn retired_entries_become_comments() {
    let text = "a:\n  # above\n  b:  # beside\n    c: [1,\n      2]\n\n    # inside\n    d: |\n      x\n  e: 1\n";
    let expected = "a:\n  # above\n  # gone\n  # b:  # beside\n  #   c: [1,\n  #     2]\n  #\n  #   # inside\n  #   d: |\n  #     x\n  e: 1\n";
    assert_eq!(edited(text, &retire("a.b")), expected);
    assert_eq!(edited("a:\n  b: 1\n", &retire("a.b")), "a: {}\n  # gone\n  # b: 1\n");
    assert_eq!(edited("a: {b: 1, c: 2}\n", &retire("a.b")), "a: {c: 2}\n");
    assert_eq!(edited("a: {b: [ # one\n  1], c: 2}\n", &retire("a.b")), "a: { # one\nc: 2}\n");
    let text = "a: {\n  b: { # one\n    x: 1 # two\n  },\n  c: 2\n}\n";
    assert_eq!(edited(text, &retire("a.b")), "a: {\n  # one\n  # two\n  c: 2\n}\n");
    let text = "a:\n  # above\n  b: {} # beside\n  c: 1\n";
    assert_eq!(
        edited(text, &Edit::RemoveEmpty { path: Path::from_dotted("a.b") }),
        "a:\n  # above\n  # beside\n  c: 1\n"
    );
}

#[test]
fn anchors_and_aliases_are_rejected() {
    let shared = "x: &x {b: 1}\na: *x\nm:\n  <<: *x\n  c: 1\nto: {}\n";
    for (edit, word) in [
        (set("x.b", "2"), "anchor"),
        (set("a.b", "2"), "alias"),
        (moved("a", "to", "a"), "alias"),
        (moved("m", "to", "m"), "anchor"),
        (moved("m.b", "to", "b"), "merge key"),
        (set("m.d", "2"), "merge key"),
    ] {
        assert!(refused(shared, &edit).contains(word), "{edit:?}: {}", refused(shared, &edit));
    }
    assert!(refused("a: 1\nb: 1\na: 2\n", &set("a", "x")).contains("duplicate key"));
    assert!(
        refused(
            "- a: {b: 1}\n  c: 1\n",
            &Edit::CommentOut { path: Path::root().index(0).key("a"), comment: String::new() }
        )
        .contains("its own line")
    );
    assert!(refused("a: 1\n", &retire("b.c")).contains("does not exist"));
}
