//! A client that sends bytes and reads replies.

use std::{
    fmt,
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// A reply.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Value>),
    Map(Vec<Value>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Other(String),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Integer(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Null => write!(f, "null"),
            Self::Array(items) => f.debug_list().entries(items).finish(),
            Self::Map(items) => write!(f, "map{items:?}"),
            Self::Set(items) => write!(f, "set{items:?}"),
            Self::Push(items) => write!(f, "push{items:?}"),
            Self::Other(text) => write!(f, "{text}"),
        }
    }
}

impl Value {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        }
    }
}

/// A stream of bytes, encrypted or not.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A connection.
pub(crate) struct Client {
    reader: BufReader<Box<dyn Stream>>,
}

/// Encodes a request.
pub(crate) fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", args.len()).into_bytes();
    for argument in args {
        let argument = argument.as_ref();
        request.extend(format!("${}\r\n", argument.len()).bytes());
        request.extend_from_slice(argument);
        request.extend_from_slice(b"\r\n");
    }
    request
}

impl Client {
    pub(crate) fn connect(port: u16) -> Self {
        Self::over(TcpStream::connect(("127.0.0.1", port)).unwrap())
    }

    /// A client of a connection that is open.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self::over_stream(stream)
    }

    /// A client of any stream.
    pub(crate) fn over_stream(stream: impl Read + Write + Send + 'static) -> Self {
        Self { reader: BufReader::new(Box::new(stream)) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
        self.reader.get_mut().flush().unwrap();
    }

    /// Sends bytes to a server that may end the connection meanwhile.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        // The reply, or its absence, says what has happened.
        let _ = self.reader.get_mut().write_all(bytes);
    }

    /// Sends a request that is separated by spaces.
    pub(crate) fn call(&mut self, request: &str) -> Value {
        let args: Vec<&str> = request.split(' ').collect();
        self.call_args(&args)
    }

    pub(crate) fn call_args<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.send(&encode(args));
        self.read()
    }

    /// Reads a reply. Fails the test at the end of the connection.
    pub(crate) fn read(&mut self) -> Value {
        self.try_read().unwrap()
    }

    /// Whether the server ends the connection without a further reply.
    pub(crate) fn is_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        matches!(self.reader.read_to_end(&mut rest), Ok(_) | Err(_)) && rest.is_empty()
    }

    pub(crate) fn try_read(&mut self) -> std::io::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end_matches(['\r', '\n']);
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().unwrap();
        Ok(match kind {
            "+" => Value::Simple(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Integer(number()),
            "$" | "=" if number() >= 0 => {
                let mut bytes = vec![0; usize::try_from(number()).unwrap() + 2];
                self.reader.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Value::Bulk(bytes)
            }
            "*" | "%" | "~" | ">" if number() >= 0 => {
                let each = if kind == "%" { 2 } else { 1 };
                let items = (0..number() * each).map(|_| self.try_read());
                let items = items.collect::<std::io::Result<Vec<Value>>>()?;
                match kind {
                    "*" => Value::Array(items),
                    "%" => Value::Map(items),
                    "~" => Value::Set(items),
                    _ => Value::Push(items),
                }
            }
            "$" | "*" | "_" => Value::Null,
            _ => Value::Other(line.to_owned()),
        })
    }
}
