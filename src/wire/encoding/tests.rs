use std::sync::LazyLock;

use proptest::prelude::*;

use super::{Codings, Decoder, Undecodable};

#[path = "../../../tests/support/codings.rs"]
mod codings;

use codings::{NAMES, RAW, encoded};

/// Every coding, and chains of them.
fn all() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain([RAW, "gzip, br", "zstd, deflate", "br, zstd, gzip, deflate"])
}

fn decoder(codings: &str) -> Decoder {
    let named = codings.replace(RAW, "deflate");
    Decoder::new(Codings::named([named.as_str()]).expect("known codings")).expect("memory")
}

/// What a decoder makes of these reads: what each became, and whether that is whole.
fn decode<'a>(codings: &str, reads: impl IntoIterator<Item = &'a [u8]>) -> Result<(Vec<Vec<u8>>, bool), Undecodable> {
    let mut decoder = decoder(codings);
    let mut became = Vec::new();
    for read in reads {
        let mut out = Vec::new();
        decoder.feed(read, &mut |piece| out.extend_from_slice(piece))?;
        became.push(out);
    }
    Ok((became, decoder.is_whole()))
}

fn whole(codings: &str, bytes: &[u8]) -> Result<Vec<u8>, Undecodable> {
    let (decoded, whole) = decode(codings, [bytes])?;
    assert!(whole, "{codings}: a whole stream is one");
    Ok(decoded.concat())
}

fn events() -> Vec<String> {
    let event =
        |n: usize| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"word {n}\"}}}}]}}\n\n");
    (0..6).map(event).chain([": a comment\n\n".to_owned(), "data: [DONE]\n\n".to_owned()]).collect()
}

#[test]
fn what_was_flushed_is_decoded_at_once() {
    let events = events();
    for codings in all() {
        let parts = encoded(codings, &events);
        let (decoded, whole) = decode(codings, parts.iter().map(Vec::as_slice)).expect(codings);
        let expected: Vec<_> = events.iter().map(|event| event.as_bytes().to_vec()).chain([Vec::new()]).collect();
        assert_eq!(decoded, expected, "{codings}");
        assert!(whole, "{codings}");
    }
}

/// Two events by zlib 1.3 (its partial and its sync flush) and by Google's brotli, whose code is not ours.
#[test]
fn what_other_encoders_flush_is_decoded_at_once() {
    let first = "4a492c49b452c8cf4be5e202";
    let partial = [format!("{first}08"), "a01430b3a43c9f8b0b20".to_owned(), "c000".to_owned()];
    let sync = [format!("{first}000000ffff"), "4a01334bcaf3b9b800000000ffff".to_owned(), "0300".to_owned()];
    let framed = |[one, two, end]: [String; 3], head: &str, tail: &str| [head.to_owned() + &one, two, end + tail];
    let mut cases =
        vec![("br", ["0b0580646174613a206f6e650a0a", "500000405ae18dee4e11a24a04b66000", "03"].map(str::to_owned))];
    for deflated in [partial, sync] {
        cases.push(("gzip", framed(deflated.clone(), "1f8b0800000000000203", "a20d4a3f16000000")));
        cases.push(("deflate", framed(deflated.clone(), "78da", "520f06ad")));
        cases.push((RAW, deflated));
    }
    for (codings, parts) in cases {
        let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
        let parts = parts.map(|part| part.as_bytes().chunks(2).map(byte).collect::<Vec<_>>());
        let expected = ["data: one\n\n", "data: two\n\n", ""].map(|text| text.as_bytes().to_vec()).to_vec();
        assert_eq!(decode(codings, parts.iter().map(Vec::as_slice)), Ok((expected, true)), "{codings}");
    }
}

#[test]
fn cuts_change_nothing() {
    let events = events();
    let plain = events.concat().into_bytes();
    for codings in all() {
        let bytes = encoded(codings, &events).concat();
        for cut in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            let (decoded, whole) = decode(codings, [head, tail]).expect(codings);
            assert_eq!(decoded.concat(), plain, "{codings} cut at {cut}");
            assert!(whole, "{codings}");
        }
        let (decoded, whole) = decode(codings, bytes.chunks(1)).expect(codings);
        assert_eq!((decoded.concat(), whole), (plain.clone(), true), "{codings} byte by byte");
    }
}

#[test]
fn a_cut_off_stream_is_not_whole_and_what_was_flushed_is_there() {
    let events = events();
    for codings in all() {
        let mut parts = encoded(codings, &events);
        parts.pop();
        let (decoded, whole) = decode(codings, [parts.concat().as_slice()]).expect(codings);
        assert_eq!((decoded.concat(), whole), (events.concat().into_bytes(), false), "{codings}");
    }
    for codings in all() {
        assert_eq!(decode(codings, []), Ok((vec![], true)), "nothing came, and nothing is missing");
    }
}

#[test]
fn large_and_incompressible_bytes_come_out_whole() {
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take(300_000)
    .collect();
    for codings in all() {
        let bytes = encoded(codings, &[&noise]).concat();
        assert!(whole(codings, &bytes).expect(codings) == noise, "{codings}");
        let (decoded, _) = decode(codings, bytes.chunks(1500)).expect(codings);
        assert!(decoded.concat() == noise, "{codings} in reads");
    }
}

#[test]
fn members_and_frames_follow_one_another() {
    for codings in ["gzip", "zstd"] {
        let two = [encoded(codings, &["one"]).concat(), encoded(codings, &["two"]).concat()].concat();
        for cut in 0..=two.len() {
            let (head, tail) = two.split_at(cut);
            let (decoded, whole) = decode(codings, [head, tail]).expect(codings);
            assert_eq!((decoded.concat(), whole), (b"onetwo".to_vec(), true), "{codings} cut at {cut}");
        }
    }
}

#[test]
fn every_field_of_a_gzip_header_is_passed_over() {
    let plain = encoded("gzip", &["text"]).concat();
    let (header, rest) = plain.split_at(10);
    let fields: [(u8, &[u8]); 4] = [(4, b"\x03\0abc"), (8, b"name\0"), (16, b"comment\0"), (2, b"\x12\x34")];
    for chosen in 0..16_usize {
        let mut bytes = header.to_vec();
        for (_, (flag, field)) in fields.iter().enumerate().filter(|(at, _)| chosen & (1 << at) != 0) {
            bytes[3] |= flag;
            bytes.extend_from_slice(field);
        }
        bytes.extend_from_slice(rest);
        assert_eq!(whole("gzip", &bytes), Ok(b"text".to_vec()), "{}", bytes.escape_ascii());
        let (decoded, _) = decode("gzip", bytes.chunks(1)).expect("byte by byte");
        assert_eq!(decoded.concat(), b"text");
    }
}

#[test]
fn what_follows_the_end_is_passed_over() {
    for codings in ["gzip", "deflate", RAW, "br"] {
        let bytes = [encoded(codings, &["text"]).concat(), b"\0\0 and more".to_vec()].concat();
        assert_eq!(whole(codings, &bytes), Ok(b"text".to_vec()), "{codings}");
    }
}

#[test]
fn what_is_damaged_is_said() {
    let garbage = b"\xff\xfe neither this nor that, whatever the coding: 0123456789";
    for codings in all() {
        assert_eq!(decode(codings, [&garbage[..]]), Err(Undecodable::Damaged), "{codings}");
    }
    let good = encoded("gzip", &["text"]).concat();
    for at in [0, 1, 2, 3, good.len() - 8, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x80;
        assert_eq!(decode("gzip", [&bad[..]]), Err(Undecodable::Damaged), "byte {at}");
    }
}

#[test]
fn what_comes_out_of_a_bounded_decoder_is_bounded_whatever_it_came_from() {
    const MOST: usize = 4 << 20;
    for codings in all() {
        let within = |bytes: &[u8]| {
            let named = Codings::named([codings.replace(RAW, "deflate").as_str()]).expect("known codings");
            let (mut length, mut decoder) = (0, Decoder::within(named, MOST).expect("memory"));
            decoder.feed(bytes, &mut |piece| length += piece.len()).map(|()| length)
        };
        let most = encoded(codings, &[vec![0; MOST]]).concat();
        assert_eq!(within(&most), Ok(MOST), "{codings}, {} times as much", MOST / most.len());
        let times = codings.split(", ").count();
        assert_eq!(
            within(&encoded(codings, &[vec![0; times * MOST + 1]]).concat()),
            Err(Undecodable::Bomb),
            "{codings}"
        );
    }
}

#[test]
fn a_bomb_is_not_followed() {
    let zeros = vec![0; 16 << 20];
    for codings in ["gzip", "br", "zstd", "gzip, gzip"] {
        let bytes = encoded(codings, &[&zeros]).concat();
        // Whole, and in reads that are harmless one by one.
        for read in [bytes.len(), 1000, 1] {
            let (mut length, mut decoder) = (0, decoder(codings));
            let fed = bytes.chunks(read).try_for_each(|read| decoder.feed(read, &mut |piece| length += piece.len()));
            assert_eq!(fed, Err(Undecodable::Bomb), "{codings}: {}", bytes.len());
            assert!(length < 4 << 20, "{codings}: {length}");
        }
    }
}

#[test]
fn a_document_of_one_letter_and_a_long_stream_of_like_events_are_no_bombs() {
    let letters = vec![b'x'; 1 << 20];
    let alike: Vec<_> = (0..20_000).map(|_| events().swap_remove(0)).collect();
    for codings in all() {
        assert!(whole(codings, &encoded(codings, &[&letters]).concat()).expect(codings) == letters, "{codings}");
        let parts = encoded(codings, &alike);
        let (decoded, whole) = decode(codings, parts.iter().map(Vec::as_slice)).expect(codings);
        assert!(whole && decoded.concat().len() == alike.concat().len(), "{codings}");
    }
}

#[test]
fn a_large_window_is_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(24).unwrap();
    encoder.include_contentsize(false).unwrap();
    std::io::copy(&mut &b"text"[..], &mut encoder).unwrap();
    // Not known to be small, the content is announced with the whole window.
    std::io::Write::flush(&mut encoder).unwrap();
    let bytes = encoder.finish().unwrap();
    assert_eq!(decode("zstd", [&bytes[..]]), Err(Undecodable::Damaged));
}

#[test]
fn codings_are_named_in_any_case_and_bounded_in_number() {
    let named = |values: &[&str]| Codings::named(values.iter().copied());
    assert_eq!(named(&["GZIP, identity ,, Br"]), named(&["x-gzip", "br"]));
    assert_ne!(named(&["gzip, br"]), named(&["br, gzip"]));
    assert!(named(&[]).is_some_and(|codings| codings.is_empty()));
    assert!(named(&["gzip, gzip, gzip, gzip"]).is_some());
    for unknown in [&["gzip, gzip, gzip, gzip, gzip"][..], &["compress"], &["gzip", "aws-chunked"], &["gzip;q=1"]] {
        assert_eq!(named(unknown), None, "{unknown:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A stream with bytes changed, in any reads, never harms who decodes it: no panic, no endless work.
    #[test]
    fn damage_is_survived(
        coding in 0..NAMES.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        read in 1..200_usize,
    ) {
        static STREAMS: LazyLock<[Vec<u8>; 5]> = LazyLock::new(|| NAMES.map(|coding| encoded(coding, &events()).concat()));
        let mut bytes = STREAMS[coding].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut decoder = decoder(NAMES[coding]);
        let mut became = 0;
        for read in bytes.chunks(read) {
            if decoder.feed(read, &mut |piece| became += piece.len()).is_err() {
                break;
            }
        }
        prop_assert!(became as u64 <= super::ALLOWANCE + super::MOST_RATIO * bytes.len() as u64);
    }
}
