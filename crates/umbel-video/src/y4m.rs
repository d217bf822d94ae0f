//! Y4M, the plainest of video files: a line of text, then frames of samples.
//!
//! ```text
//! YUV4MPEG2 W640 H360 F30:1 Ip A1:1 C420jpeg⏎
//! FRAME⏎ ‖ Y ‖ Cb ‖ Cr
//! FRAME⏎ ‖ …
//! ```
//!
//! Progressive 4:2:0 with 8 bits is supported, wherever chroma is sited. Reading is bounded by the
//! size that the first line declares, and that by [`Size`].

use std::io::{self, Read, Write};

use thiserror::Error;

use crate::frame::{Component, Frame, FrameRate, FrameRateError, Size, SizeError};

/// Longest line of text, in bytes. Those that tools write are below 100.
const MAX_LINE: usize = 1024;

/// Errors of a Y4M stream.
#[derive(Debug, Error)]
pub enum Y4mError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It does not begin as Y4M does.
    #[error("this is not Y4M: try ffmpeg -i INPUT -pix_fmt yuv420p -f yuv4mpegpipe -")]
    NotY4m,
    /// A line of text does not end.
    #[error("a line of the Y4M stream is longer than {MAX_LINE} bytes")]
    LongLine,
    /// A parameter is not understood.
    #[error("the parameter '{0}' of the Y4M stream is not understood")]
    Parameter(String),
    /// A parameter that is needed is missing.
    #[error("the Y4M stream does not say its {0}")]
    Missing(&'static str),
    /// The samples are of another kind.
    #[error("samples of kind {0} are not supported: convert with ffmpeg -pix_fmt yuv420p")]
    Samples(String),
    /// Fields are interlaced.
    #[error("interlaced video is not supported: convert with ffmpeg -vf yadif")]
    Interlaced,
    /// The size is refused.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The frame rate is refused.
    #[error(transparent)]
    FrameRate(#[from] FrameRateError),
    /// There is something else where a frame should begin.
    #[error("frame {0} of the Y4M stream does not begin with FRAME")]
    NoFrame(u64),
    /// The stream ends within a frame.
    #[error("the Y4M stream ends in the middle of frame {0}")]
    Truncated(u64),
    /// A frame of another size was to be written.
    #[error("a Y4M stream cannot change its size")]
    OtherSize,
}

/// Parameters in the first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Size of all frames.
    pub size: Size,
    /// Frames a second.
    pub rate: FrameRate,
}

impl Header {
    /// Parses the first line, without its end.
    ///
    /// # Errors
    ///
    /// When it is no Y4M, says too little, or asks for what is not supported.
    pub fn parse(line: &[u8]) -> Result<Self, Y4mError> {
        let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        if words.next() != Some(b"YUV4MPEG2".as_slice()) {
            return Err(Y4mError::NotY4m);
        }
        let (mut width, mut height, mut rate) = (None, None, None);
        for word in words {
            let bad = || Y4mError::Parameter(String::from_utf8_lossy(word).into_owned());
            let text = std::str::from_utf8(&word[1..]).map_err(|_| bad())?;
            match word[0] {
                b'W' => width = Some(text.parse().map_err(|_| bad())?),
                b'H' => height = Some(text.parse().map_err(|_| bad())?),
                b'F' => {
                    let (n, d) = text.split_once(':').ok_or_else(bad)?;
                    rate = Some((n.parse().map_err(|_| bad())?, d.parse().map_err(|_| bad())?));
                }
                b'I' if !matches!(text, "p" | "?") => return Err(Y4mError::Interlaced),
                b'C' if !matches!(text, "420" | "420jpeg" | "420mpeg2" | "420paldv") => {
                    return Err(Y4mError::Samples(text.chars().take(20).collect()));
                }
                // Aspect ratio, comments, and what is to come say nothing about the bytes.
                _ => {}
            }
        }
        let size = Size::new(
            width.ok_or(Y4mError::Missing("width"))?,
            height.ok_or(Y4mError::Missing("height"))?,
        )?;
        let (n, d) = rate.ok_or(Y4mError::Missing("frame rate"))?;
        Ok(Self { size, rate: FrameRate::new(n, d)? })
    }

    fn line(&self) -> String {
        let (size, rate) = (self.size, self.rate);
        let (width, height) = (size.width(), size.height());
        let (n, d) = (rate.numerator(), rate.denominator());
        format!("YUV4MPEG2 W{width} H{height} F{n}:{d} Ip A1:1 C420jpeg\n")
    }
}

/// Reads frames.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    frames: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the first line. A buffered input is best: lines are read byte by byte.
    ///
    /// # Errors
    ///
    /// As [`Header::parse`], and when reading fails.
    pub fn new(mut input: R) -> Result<Self, Y4mError> {
        let line = read_line(&mut input)?.ok_or(Y4mError::NotY4m)?;
        let header = Header::parse(&line)?;
        Ok(Self { input, header, frames: 0 })
    }

    /// Parameters of the first line.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Reads the next frame into `frame`, and returns whether there was one.
    ///
    /// # Errors
    ///
    /// When the stream breaks off within a frame, has something else there, or reading fails.
    pub fn read(&mut self, frame: &mut Frame) -> Result<bool, Y4mError> {
        if frame.size() != self.header.size {
            *frame = Frame::grey(self.header.size);
        }
        let Some(line) = read_line(&mut self.input)? else { return Ok(false) };
        if line.split(|&byte| byte == b' ').next() != Some(b"FRAME".as_slice()) {
            return Err(Y4mError::NoFrame(self.frames));
        }
        for component in Component::ALL {
            self.input.read_exact(frame.plane_mut(component)).map_err(|error| {
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    Y4mError::Truncated(self.frames)
                } else {
                    Y4mError::Io(error)
                }
            })?;
        }
        self.frames += 1;
        Ok(true)
    }
}

/// Reads up to the end of a line; `None` where the input ends before it begins.
fn read_line(input: &mut impl Read) -> Result<Option<Vec<u8>>, Y4mError> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return Err(Y4mError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) if byte[0] == b'\n' => return Ok(Some(line)),
            Ok(_) if line.len() == MAX_LINE => return Err(Y4mError::LongLine),
            Ok(_)
                if line.len() == 9 && !line.starts_with(b"YUV4MPEG2") && line[..5] != *b"FRAME" =>
            {
                return Err(Y4mError::NotY4m);
            }
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes frames.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    header: Header,
}

impl<W: Write> Writer<W> {
    /// Writes the first line.
    ///
    /// # Errors
    ///
    /// When writing fails.
    pub fn new(mut output: W, header: Header) -> Result<Self, Y4mError> {
        output.write_all(header.line().as_bytes())?;
        Ok(Self { output, header })
    }

    /// Writes a frame and flushes, so that a player shows it at once.
    ///
    /// # Errors
    ///
    /// When the frame has another size, or writing fails.
    pub fn write(&mut self, frame: &Frame) -> Result<(), Y4mError> {
        if frame.size() != self.header.size {
            return Err(Y4mError::OtherSize);
        }
        self.output.write_all(b"FRAME\n")?;
        for component in Component::ALL {
            self.output.write_all(frame.plane(component))?;
        }
        self.output.flush()?;
        Ok(())
    }

    /// Returns the output.
    pub fn into_inner(self) -> W {
        self.output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> Y4mError {
        match Reader::new(bytes) {
            Err(error) => error,
            Ok(mut reader) => {
                let mut frame = Frame::grey(reader.header().size);
                loop {
                    match reader.read(&mut frame) {
                        Ok(true) => {}
                        Ok(false) => panic!("nothing was refused"),
                        Err(error) => return error,
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let size = Size::new(35, 17).unwrap();
        let header = Header { size, rate: FrameRate::new(30_000, 1001).unwrap() };
        let mut frame = Frame::grey(size);
        for component in Component::ALL {
            for (i, sample) in frame.plane_mut(component).iter_mut().enumerate() {
                *sample = (i * 7 % 256) as u8;
            }
        }
        let mut writer = Writer::new(Vec::new(), header).unwrap();
        writer.write(&frame).unwrap();
        writer.write(&Frame::grey(size)).unwrap();
        let bytes = writer.into_inner();

        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        assert_eq!(*reader.header(), header);
        let mut read = Frame::grey(Size::new(1, 1).unwrap());
        assert!(reader.read(&mut read).unwrap());
        assert_eq!(read, frame);
        assert!(reader.read(&mut read).unwrap());
        assert_eq!(read, Frame::grey(size));
        assert!(!reader.read(&mut read).unwrap());
    }

    #[test]
    fn the_lines_of_common_tools_are_understood() {
        for line in [
            "YUV4MPEG2 W640 H360 F30:1 Ip A1:1 C420mpeg2 XYSCSS=420MPEG2 XCOLORRANGE=LIMITED",
            "YUV4MPEG2 W640 H360 F30000:1001 I? A0:0 C420jpeg",
            "YUV4MPEG2 W640 H360 F25:1",
            "YUV4MPEG2 H360  W640 C420 F25:1",
        ] {
            let header = Header::parse(line.as_bytes()).unwrap();
            assert_eq!((header.size.width(), header.size.height()), (640, 360), "{line}");
        }
    }

    #[test]
    fn what_is_not_supported_is_named() {
        type Is = fn(&Y4mError) -> bool;
        let cases: [(&str, Is); 14] = [
            ("RIFF", |e| matches!(e, Y4mError::Io(_))),
            ("RIFF____________", |e| matches!(e, Y4mError::NotY4m)),
            ("", |e| matches!(e, Y4mError::NotY4m)),
            ("YUV4MPEG2 W8 H8 F1:1 C444\n", |e| matches!(e, Y4mError::Samples(c) if c == "444")),
            ("YUV4MPEG2 W8 H8 F1:1 C420p10\n", |e| matches!(e, Y4mError::Samples(_))),
            ("YUV4MPEG2 W8 H8 F1:1 It\n", |e| matches!(e, Y4mError::Interlaced)),
            ("YUV4MPEG2 H8 F1:1\n", |e| matches!(e, Y4mError::Missing("width"))),
            ("YUV4MPEG2 W8 H8\n", |e| matches!(e, Y4mError::Missing("frame rate"))),
            ("YUV4MPEG2 W8 H8 F0:0\n", |e| matches!(e, Y4mError::FrameRate(_))),
            ("YUV4MPEG2 W-8 H8 F1:1\n", |e| matches!(e, Y4mError::Parameter(_))),
            ("YUV4MPEG2 W99999 H8 F1:1\n", |e| matches!(e, Y4mError::Size(_))),
            ("YUV4MPEG2 W99999999999 H8 F1:1\n", |e| matches!(e, Y4mError::Parameter(_))),
            ("YUV4MPEG2 W8 H8 F1:1\nFRAMES\n", |e| matches!(e, Y4mError::NoFrame(0))),
            ("YUV4MPEG2 W8 H8 F1:1\nFRAME\n....", |e| matches!(e, Y4mError::Truncated(0))),
        ];
        for (text, is) in cases {
            let error = refusal(text.as_bytes());
            assert!(is(&error), "{text:?}: {error:?}");
        }
        let endless = [b"YUV4MPEG2 X".as_slice(), &[b'x'; 2000]].concat();
        assert!(matches!(refusal(&endless), Y4mError::LongLine));
    }

    #[test]
    fn a_frame_of_another_size_is_not_written() {
        let size = Size::new(8, 8).unwrap();
        let header = Header { size, rate: FrameRate::new(30, 1).unwrap() };
        let mut writer = Writer::new(Vec::new(), header).unwrap();
        let other = Frame::grey(Size::new(8, 10).unwrap());
        assert!(matches!(writer.write(&other), Err(Y4mError::OtherSize)));
    }
}
