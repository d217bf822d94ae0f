//! HTTP/1.1 on connections of the engine: heads of requests and of responses.

pub(crate) mod request;
pub(crate) mod response;
