//! Messages that may cross a wire: a stable name, a version and a lane.
//!
//! [`remote!`](crate::remote) makes one of any serde type. The id in a frame is a constant hash of
//! the name; two names with one hash are refused when the second is registered. A released message
//! never changes: a change is a new type with the same name and the next version.
//!
//! While a cluster is upgraded, some nodes know only the older version. A receiver that still
//! accepts it lists it with
//! [`RemoteHandlers::accept_legacy`](crate::RemoteHandlers::accept_legacy). A sender whose newer
//! type names its `older` one sends the older one to a peer whose hello lists nothing newer.

use actix::Message;
#[doc(hidden)]
pub use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::codec::{self, Garbled};

/// The ordered stream of a link in which a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The default stream.
    Ordinary,
    /// A small stream for pings, which nothing large can delay. Not ordered with the other lane.
    Ping,
}

/// The treatment of a message for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The send fails with `Full`. A tell that has already crossed a link waits at the receiver's
    /// end of the link, before all later messages for the same actor. When much waits there, the
    /// link is no longer read, its outbox fills, and further tells fail at the sender. A link whose
    /// messages find no room for 30 s is closed.
    #[default]
    Refuse,
    /// The oldest waiting tell is dropped for the new one: for samples, of which the newest are
    /// worth most. Asks and `Exited` are never dropped; if nothing else waits, the new message is
    /// refused. On the outgoing side of a link nothing can be dropped any more, so there this
    /// equals `Refuse`.
    DropOldest,
    /// The link of the message is closed, so that a receiver that cannot keep up starts anew: for
    /// streams of events. A sender on the same node gets `Full`.
    CloseLink,
}

/// A message that may cross a wire.
pub trait Remote:
    Message<Result: Serialize + DeserializeOwned + Send + 'static>
    + Serialize
    + DeserializeOwned
    + Send
    + 'static
{
    /// The stable name, `family/message` in lower case.
    const NAME: &'static str;
    /// The version of this type's encoded form, from 1.
    const VERSION: u16;
    /// The stream it travels in.
    const LANE: Lane = Lane::Ordinary;
    /// The treatment of a tell for which the link has no room; with `CloseLink`, also if the
    /// mailbox behind it has none.
    const WHEN_FULL: WhenFull = WhenFull::Refuse;
    /// The name's hash, which replaces it in frames.
    const ID: u32 = id_of(Self::NAME);
    /// The oldest version in which it can be sent; `VERSION`, unless it names an `older` type.
    const OLDEST: u16 = Self::VERSION;

    /// Appends its bytes in the form of this version, from `OLDEST` to `VERSION`.
    fn encode_as(&self, version: u16, buffer: &mut BytesMut) -> Result<(), Garbled> {
        debug_assert_eq!(version, Self::VERSION, "{} has no such version", Self::NAME);
        codec::encode_into(self, buffer)
    }
}

/// The 32-bit FNV-1a hash of a message name.
pub const fn id_of(name: &str) -> u32 {
    let bytes = name.as_bytes();
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

/// The number in a version word such as `v1`. Any other word is a compile error in `remote!`.
#[doc(hidden)]
pub const fn version_of(word: &str) -> u16 {
    let bytes = word.as_bytes();
    assert!(
        bytes.len() > 1 && bytes[0] == b'v',
        "a version is written v1, v2, ..."
    );
    let mut number = 0_u16;
    let mut at = 1;
    while at < bytes.len() {
        assert!(
            bytes[at].is_ascii_digit(),
            "a version is written v1, v2, ..."
        );
        number = number * 10 + (bytes[at] - b'0') as u16;
        at += 1;
    }
    assert!(number > 0, "versions count from v1");
    number
}

/// Makes serde types into messages that may cross a wire.
///
/// One entry is `Type = "family/name" v2 older OldType lane Ping full CloseLink -> Result`. The
/// older version, the lane, the treatment when there is no room and the result may be left out; the
/// defaults are none, `Ordinary`, `Refuse` and `()`. Semicolons separate several entries. The older
/// type is a message of its own, with the version before and the same result, and implements
/// `From<&Type>`.
///
/// ```
/// use runtime::prelude::*;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Count(u64);
/// #[derive(Serialize, Deserialize)]
/// struct Ping;
///
/// remote! {
///     Count = "example/count" v1 -> u64;
///     Ping = "example/ping" v1 lane Ping;
/// }
/// assert_eq!((Count::NAME, Count::VERSION), ("example/count", 1));
/// ```
#[macro_export]
macro_rules! remote {
    () => {};
    ($message:ty = $name:literal $version:ident $(older $older:ident)? $(lane $lane:ident)? $(full $full:ident)? -> $result:ty $(; $($rest:tt)*)?) => {
        $crate::remote!(@one $message, $name, $version, [$($older)?], [$($lane)?], [$($full)?], $result);
        $($crate::remote!($($rest)*);)?
    };
    ($message:ty = $name:literal $version:ident $(older $older:ident)? $(lane $lane:ident)? $(full $full:ident)? $(; $($rest:tt)*)?) => {
        $crate::remote!(@one $message, $name, $version, [$($older)?], [$($lane)?], [$($full)?], ());
        $($crate::remote!($($rest)*);)?
    };
    (@one $message:ty, $name:literal, $version:ident, [$($older:ident)?], [$($lane:ident)?], [$($full:ident)?], $result:ty) => {
        impl $crate::prelude::Message for $message {
            type Result = $result;
        }
        impl $crate::Remote for $message {
            const NAME: &'static str = $name;
            const VERSION: u16 = const { $crate::wire::message::version_of(stringify!($version)) };
            $(const LANE: $crate::Lane = $crate::Lane::$lane;)?
            $(const WHEN_FULL: $crate::WhenFull = $crate::WhenFull::$full;)?
            $(
                const OLDEST: u16 = {
                    assert!(
                        <$older as $crate::Remote>::ID == Self::ID
                            && <$older as $crate::Remote>::VERSION + 1 == Self::VERSION,
                        "the older type has the same name and the previous version"
                    );
                    <$older as $crate::Remote>::OLDEST
                };

                fn encode_as(
                    &self,
                    version: u16,
                    buffer: &mut $crate::wire::message::BytesMut,
                ) -> ::std::result::Result<(), $crate::wire::codec::Garbled> {
                    if version >= <Self as $crate::Remote>::VERSION {
                        return $crate::wire::codec::encode_into(self, buffer);
                    }
                    $crate::Remote::encode_as(&<$older>::from(self), version, buffer)
                }
            )?
        }
        $(
            const _: fn(<$older as $crate::prelude::Message>::Result) -> $result = |result| result;
        )?
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_published_fnv_1a_values() {
        assert_eq!(
            [id_of(""), id_of("a"), id_of("foobar")],
            [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]
        );
    }

    #[test]
    fn a_version_word_is_its_number() {
        assert_eq!([version_of("v1"), version_of("v12")], [1, 12]);
    }
}
