// What an independent tokenizer, npm's llama-tokenizer-js, says of hard strings, and Llama-2's vocabulary out of it.
//
//   node make.mjs vocabulary PACKAGE > llama2-vocab.json
//   node make.mjs expected PACKAGE > expected.json
//
// PACKAGE is where the package lies; scripts/llama-vocab.sh installs it and calls both.
//
// The vocabulary: `pieces`, `scores` and `types` by token id, with the meaning they have in GGUF (`tokenizer.ggml.tokens`,
// `.scores`, `.token_type`). Expected: `cases`, each a `text`, its `ids` with the space that Llama puts in front of a text,
// and its ids without (`bare`); neither has a BOS. No text is read as a control token.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

import { STRINGS } from "./strings.mjs";

const [what, folder] = process.argv.slice(2);
const { LlamaTokenizer } = await import(pathToFileURL(resolve(folder, "llama-tokenizer.js")));
const { version } = JSON.parse(readFileSync(resolve(folder, "package.json"), "utf8"));
const oracle = new LlamaTokenizer();

// As `tokenizer.ggml.token_type` counts them. 0 is <unk>, 1 <s>, 2 </s>, then come 256 bytes.
const NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6;
const FIRST_NORMAL = 259;

const pieces = oracle.vocabById;
const types = pieces.map((_, id) => (id === 0 ? UNKNOWN : id < 3 ? CONTROL : id < FIRST_NORMAL ? BYTE : NORMAL));
// SentencePiece's score of a piece it has learnt is how many it learnt before; pieces of nothing but spaces were added by
// hand, below all others. The package has no scores but ranked pairs: `check` compares.
const scores = pieces.map((piece, id) => (id < FIRST_NORMAL ? 0 : /^▁+$/.test(piece) ? -1e9 : FIRST_NORMAL - id));

// Merging as SentencePiece does it: the best score first, of equal ones the leftmost.
function merge(text) {
    const parts = Array.from(text.replaceAll(" ", "▁"));
    for (;;) {
        let at = -1, best = -Infinity;
        for (let i = 0; i + 1 < parts.length; i++) {
            const id = oracle.vocabByString.get(parts[i] + parts[i + 1]);
            if (types[id] === NORMAL && scores[id] > best) [at, best] = [i, scores[id]];
        }
        if (at < 0) break;
        parts.splice(at, 2, parts[at] + parts[at + 1]);
    }
    return parts.flatMap((part) => {
        const id = oracle.vocabByString.get(part);
        return types[id] === NORMAL ? [id] : [...new TextEncoder().encode(part)].map((byte) => byte + 3);
    });
}

function check(condition, message) {
    if (!condition) throw new Error(message);
}

const equal = (left, right) => left.join() === right.join();

function cases() {
    check(new Set(STRINGS).size === STRINGS.length, "a string occurs twice");
    return STRINGS.map((text) => {
        const quoted = JSON.stringify(text);
        check(text.isWellFormed?.() ?? true, `${quoted} is no valid Unicode`);
        const ids = oracle.encode(text, false, true);
        const bare = oracle.encode(text, false, false);
        // Asked for BOS, the package puts 1 in front, and changes nothing else; but of nothing it makes nothing.
        check(equal(oracle.encode(text, true, true), text ? [1, ...ids] : []), `BOS changes ${quoted}`);
        check(equal(ids, text ? merge(` ${text}`) : []), `scores and ranks disagree on ${quoted}`);
        check(equal(bare, merge(text)), `scores and ranks disagree on ${quoted} without a space in front`);
        return { text, ids, bare };
    });
}

// In ASCII: what is invisible, or runs from right to left, is to be seen in a diff.
const ascii = (value) =>
    JSON.stringify(value).replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

check(pieces.length === 32000 && pieces[13] === "<0x0A>" && pieces[FIRST_NORMAL] === "▁▁", "this is not Llama-2's vocabulary");
if (what === "vocabulary") {
    cases();
    console.log(JSON.stringify({ pieces, scores, types }));
} else if (what === "expected") {
    const lines = cases().map((one) => `    ${ascii(one)}`);
    console.log(`{\n  "oracle": "llama-tokenizer-js ${version}",\n  "cases": [\n${lines.join(",\n")}\n  ]\n}`);
} else {
    throw new Error(`make.mjs: ${what}: neither "vocabulary" nor "expected"`);
}
