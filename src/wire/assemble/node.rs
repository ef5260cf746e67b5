//! Values that come in parts: text is joined, lists are continued, objects merged, anything else replaced.
//!
//! Invariant: each value keeps the type it first had; a part of another type says nothing. What would not fit is
//! left out, and the [`Room`] remembers that something was.

use super::LARGEST;
use crate::wire::raw::{self, items, members};

/// How deep objects within objects are merged; a tool call's arguments are three deep.
const NESTING: u8 = 6;
/// How many members of one object are followed: they are looked up one by one.
const MOST_MEMBERS: usize = 256;
/// What a kept value costs beside its bytes.
const OVERHEAD: usize = 96;
/// Text that comes whole, if more than once, and is not continued.
const WHOLE: [&str; 4] = ["role", "type", "id", "format"];
/// What nothing but text can be.
const TEXT: [&str; 3] = ["role", "refusal", "name"];
/// What nothing but text, or a list of its parts, can be.
const TEXT_IN_PARTS: [&str; 3] = ["content", "reasoning_content", "reasoning"];

/// How much is kept, and whether that was too much.
#[derive(Debug, Default)]
pub(super) struct Room {
    used: usize,
    exceeded: bool,
}

impl Room {
    /// Whether there is room for so many bytes more, which are then taken.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        if self.exceeded || self.used + bytes + OVERHEAD > LARGEST {
            self.exceeded = true;
            return false;
        }
        self.used += bytes;
        true
    }

    /// Keeps `value` in the place of what was kept there.
    pub(super) fn replace(&mut self, place: &mut Option<Box<str>>, value: &str) {
        self.used -= place.as_ref().map_or(0, |old| old.len());
        if self.take(value.len()) {
            *place = Some(value.into());
        } else {
            self.used += place.as_ref().map_or(0, |old| old.len());
        }
    }

    /// Something came that cannot be kept, whatever its size.
    pub(super) fn exceed(&mut self) {
        self.exceeded = true;
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded
    }
}

#[derive(Debug)]
enum Node {
    /// A number, `true`, `false`, `null`, or what is not looked into, as written.
    Raw(Box<str>),
    /// The inside of a string, as written: its escapes stay.
    Text(String),
    List(Vec<Box<str>>),
    Object(Members),
}

/// An object's members, in the order in which they first came.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<(Box<str>, Node)>);

impl Members {
    /// Merges every member of an object.
    pub(super) fn merge_all(&mut self, text: &str, room: &mut Room) {
        self.merge_object(text, NESTING, room);
    }

    /// Merges one member.
    pub(super) fn merge(&mut self, key: &str, value: &str, room: &mut Room) {
        self.merge_at(key, value, NESTING, room);
    }

    /// Lets a member be the last that is not null.
    pub(super) fn last(&mut self, key: &str, value: &str, room: &mut Room) {
        let known = self.node(key);
        if value == "null" && known.is_some() {
            return;
        }
        let before = match known {
            Some(Node::Raw(raw)) => raw.len(),
            _ => 0,
        };
        room.used -= before;
        if !room.take(value.len()) {
            room.used += before;
        } else if self.set(key, Node::Raw(value.into()), room).is_none() {
            // Only a member that is new finds none.
            room.used -= value.len();
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.node(key).is_some_and(|node| !matches!(node, Node::Raw(raw) if **raw == *"null"))
    }

    /// Whether a member is text that is not empty, or a list of it.
    pub(super) fn has_text(&self, key: &str) -> bool {
        match self.node(key) {
            Some(Node::Text(text)) => !text.is_empty(),
            Some(Node::List(items)) => !items.is_empty(),
            _ => false,
        }
    }

    /// Whether a member is this raw string.
    pub(super) fn is(&self, key: &str, value: &str) -> bool {
        matches!(self.node(key), Some(Node::Text(text)) if inside(value) == Some(text))
    }

    /// Continues a text with a raw string. A member that is something else by now stays as it is.
    pub(super) fn join(&mut self, key: &str, value: &str, room: &mut Room) {
        let Some(more) = inside(value) else { return };
        let began = match self.node(key) {
            None => Some(""),
            Some(Node::Raw(raw)) if **raw == *"null" => Some(""),
            Some(Node::Raw(raw)) => inside(raw),
            Some(_) => None,
        };
        let node = match began.map(str::to_owned) {
            Some(began) => self.set(key, Node::Text(began), room),
            None => self.node_mut(key),
        };
        let Some(Node::Text(text)) = node else { return };
        if room.take(more.len()) {
            text.push_str(more);
        }
    }

    /// Continues a list with an item. A member that is something else by now stays as it is.
    pub(super) fn append(&mut self, key: &str, item: &str, room: &mut Room) {
        let began = match self.node(key) {
            None => Some("[]"),
            Some(Node::Raw(raw)) if **raw == *"null" => Some("[]"),
            Some(Node::Raw(raw)) => raw.starts_with('[').then_some(&**raw),
            Some(_) => None,
        };
        let list = began.map(|began| {
            let mut list = Vec::new();
            items(began, |item| list.push(item.into()));
            Node::List(list)
        });
        let node = match list {
            Some(list) => self.set(key, list, room),
            None => self.node_mut(key),
        };
        let Some(Node::List(list)) = node else { return };
        if room.take(item.len() + size_of::<Box<str>>()) {
            list.push(item.into());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn merge_object(&mut self, text: &str, nesting: u8, room: &mut Room) {
        members(text, |key, value| self.merge_at(&key, value, nesting, room));
    }

    fn merge_at(&mut self, key: &str, value: &str, nesting: u8, room: &mut Room) {
        let vacant = match self.node(key) {
            Some(_) if value == "null" => return,
            None => true,
            Some(Node::Raw(raw)) => **raw == *"null",
            Some(Node::Text(text)) => text.is_empty() && TEXT_IN_PARTS.contains(&key) && value.starts_with('['),
            Some(_) => false,
        };
        let node = if vacant {
            let Some(empty) = Node::beginning(key, value, nesting) else { return };
            if !room.take(OVERHEAD) {
                return;
            }
            let node = self.set(key, empty, room);
            if node.is_none() {
                room.used -= OVERHEAD;
            }
            node
        } else {
            self.node_mut(key)
        };
        let Some(node) = node else { return };
        match node {
            Node::Raw(raw) if nesting == 0 || is_scalar(value) => {
                if room.take(value.len()) {
                    room.used -= raw.len();
                    *raw = value.into();
                }
            }
            Node::Raw(_) => {}
            Node::Text(text) => {
                let Some(more) = inside(value) else { return };
                if WHOLE.contains(&key) && !more.is_empty() {
                    room.used -= text.len();
                    text.clear();
                }
                if room.take(more.len()) {
                    text.push_str(more);
                }
            }
            Node::List(list) => {
                let mut add = |item: &str| {
                    if room.take(item.len() + size_of::<Box<str>>()) {
                        list.push(item.into());
                    }
                };
                match value.as_bytes().first() {
                    Some(b'[') => {
                        items(value, add);
                    }
                    Some(b'"') if TEXT_IN_PARTS.contains(&key) && value.len() > 2 => add(value),
                    _ => {}
                }
            }
            Node::Object(inner) => inner.merge_object(value, nesting.saturating_sub(1), room),
        }
    }

    fn node(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|(known, _)| **known == *key).map(|(_, node)| node)
    }

    fn node_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.0.iter_mut().find(|(known, _)| **known == *key).map(|(_, node)| node)
    }

    /// `None` when there is no room for one more.
    fn set(&mut self, key: &str, node: Node, room: &mut Room) -> Option<&mut Node> {
        let at = match self.0.iter().position(|(known, _)| **known == *key) {
            Some(at) => {
                self.0[at].1 = node;
                at
            }
            None if self.0.len() < MOST_MEMBERS && room.take(key.len() + OVERHEAD) => {
                self.0.push((key.into(), node));
                self.0.len() - 1
            }
            None => return None,
        };
        Some(&mut self.0[at].1)
    }

    /// Writes the object.
    pub(super) fn write(&self, out: &mut String) {
        out.push('{');
        self.write_some(out, |_| true);
        close(out, '}');
    }

    /// Writes the members of these names, each with a comma behind it.
    pub(super) fn write_some(&self, out: &mut String, wanted: impl Fn(&str) -> bool) {
        for (name, node) in self.0.iter().filter(|(name, _)| wanted(name)) {
            write_name(name, out);
            node.write(out);
            out.push(',');
        }
    }

    /// Writes one member, or this in its place where there is none, with a comma behind it.
    pub(super) fn write_or(&self, out: &mut String, name: &str, instead: &str) {
        write_name(name, out);
        match self.node(name) {
            Some(node) => node.write(out),
            None => out.push_str(instead),
        }
        out.push(',');
    }
}

impl Node {
    /// What a value becomes a part of. `None` for one that `key` cannot have.
    fn beginning(key: &str, value: &str, nesting: u8) -> Option<Self> {
        Some(match value.as_bytes().first()? {
            b'"' => Self::Text(String::new()),
            _ if value == "null" => Self::Raw("null".into()),
            _ if TEXT.contains(&key) => return None,
            b'[' => Self::List(Vec::new()),
            _ if TEXT_IN_PARTS.contains(&key) => return None,
            b'{' if nesting > 0 => Self::Object(Members::default()),
            _ => Self::Raw("null".into()),
        })
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Raw(raw) => out.push_str(raw),
            Self::Text(text) => out.extend(["\"", text, "\""]),
            Self::List(items) => {
                out.push('[');
                for item in items {
                    out.push_str(item);
                    out.push(',');
                }
                close(out, ']');
            }
            Self::Object(members) => members.write(out),
        }
    }
}

/// Closes a list or an object whose last member may have left a comma.
pub(super) fn close(out: &mut String, end: char) {
    if out.ends_with(',') {
        out.pop();
    }
    out.push(end);
}

fn write_name(name: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(name).to_string());
    out.push(':');
}

/// Whether an `error` says nothing: `null`, `false`, `0`, an empty string, list or object.
pub(super) fn is_empty(text: &str) -> bool {
    text == "null" || raw::is_empty(text)
}

/// The inside of a raw string. `None` for anything else.
pub(super) fn inside(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

fn is_scalar(value: &str) -> bool {
    !value.starts_with(['"', '[', '{'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_takes_no_room() {
        let (mut members, mut room) = (Members::default(), Room::default());
        for name in 0..MOST_MEMBERS {
            members.last(&name.to_string(), "1", &mut room);
        }
        let full = room.used();
        for value in ["[1,2,3]", r#""text""#, r#"{"a":1}"#] {
            members.last("more", value, &mut room);
            members.merge("more", value, &mut room);
            members.append("more", value, &mut room);
            members.join("more", value, &mut room);
        }
        assert_eq!((members.has("more"), room.used(), room.is_exceeded()), (false, full, false));
        members.last("0", "23", &mut room);
        assert_eq!(room.used(), full + 1);
    }
}
