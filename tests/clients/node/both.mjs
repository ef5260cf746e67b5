// The official OpenAI SDK for Node over both of its APIs: whole, streamed, aborted. Prints what it saw as one JSON document.
//
//   node both.mjs MODEL WORDS HEADERS   (OPENAI_BASE_URL and OPENAI_API_KEY say where; aborts after WORDS words of a stream
//                                        asked for with HEADERS; CLIENT_MODULES names the folder that holds node_modules)

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.CLIENT_MODULES}/package.json`);
const OpenAI = require('openai').default ?? require('openai');

const [model, words, headers] = process.argv.slice(2);
const sdk = new OpenAI({ maxRetries: 0, timeout: 20_000 });
const content = 'how deep is the river today';
const chat = (options, more) =>
  sdk.chat.completions.create({ model, messages: [{ role: 'user', content }], ...options }, more);
const respond = (options, more) => sdk.responses.create({ model, input: content, ...options }, more);
const chatWord = (chunk) => chunk.choices[0]?.delta.content ?? '';
const responseWord = (event) => (event.type === 'response.output_text.delta' ? event.delta : '');

async function all(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
}

async function abort(ask, word) {
  const stream = await ask({ stream: true }, { headers: JSON.parse(headers) });
  let seen = 0;
  for await (const event of stream) {
    if (word(event) && ++seen === Number(words)) stream.controller.abort();
  }
  return seen >= Number(words);
}

const chatWhole = await chat({});
const chatStream = await all(chat({ stream: true }));
const chatAborted = await abort(chat, chatWord);
const whole = await respond({});
const stream = await all(respond({ stream: true }));
const aborted = await abort(respond, responseWord);
const texts = [
  chatWhole.choices[0].message.content,
  chatStream.map(chatWord).join(''),
  whole.output_text,
  stream.map(responseWord).join(''),
];
console.log(JSON.stringify({ texts, aborted: [chatAborted, aborted], replies: [chatWhole, chatStream, whole, stream] }));
