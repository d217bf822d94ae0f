//! Input that was discarded, by reason.

use umbel_engine::drops::drop_reasons;

drop_reasons! {
    /// It is no message of its protocol.
    Malformed,
    /// It is of a type that a router of source-specific multicast does not need.
    OtherType,
    /// It came by an interface that is not served, or not with this family.
    NoSuchInterface,
    /// Its sender is not on the link by which it came.
    OffLink,
    /// It is this router's own.
    Own,
    /// It is a message of PIM on a link where it is not spoken, or of a router that was not named
    /// where others were.
    NotNamed,
    /// It is a Join/Prune of a router that has said no Hello.
    NoNeighbour,
    /// It is about a group that no router forwards, such as those of the link itself.
    LinkGroup,
    /// It wants a source-specific group from any source [RFC 4604 §2.2.1].
    AnySource,
    /// It is about a shared tree, or about a range of addresses.
    SharedTree,
    /// It is a query of membership that the hosts in question do not hear.
    Unheard,
    /// It came faster than one host, or all unknown ones of a link, may send.
    Flood,
    /// A channel of the link or host that had most, given up for one that had less.
    GaveWay,
    /// More hosts than the table has room for.
    HostsOverLimit,
    /// More groups than the table has room for, or than one host may join.
    GroupsOverLimit,
    /// More sources than one host may name for a group.
    SourcesOverLimit,
    /// More channels than the table has room for.
    TreesOverLimit,
    /// More neighbours than the table has room for.
    NeighboursOverLimit,
    /// More interfaces than the table has room for.
    InterfacesOverLimit,
}
