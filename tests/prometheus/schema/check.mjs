// Type-checks every dashboard against the published types of each major version of Grafana. Arguments: the dashboards.
// A dashboard becomes an object literal, in which TypeScript also refuses properties that no type knows.

import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import ts from 'typescript';

const here = import.meta.dirname;
const files = process.argv.slice(2);
if (files.length === 0) {
    console.error('name the dashboards to check');
    process.exit(2);
}
// The oldest version that the dashboards are for, and the one that docker-compose.yml starts.
const versions = ['grafana-schema-11', 'grafana-schema-12'];
const common = {
    strict: true, noEmit: true, skipLibCheck: true, types: [],
    target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler,
};
// One statement to a dashboard, in memory and beside the types; the JSON begins on a line of its own.
const sources = new Map(files.map((file) => [
    join(here, `${basename(file)}.ts`),
    { file, text: `import type { Ours } from './panels'; export const dashboard: Ours =\n${readFileSync(file, 'utf8')};` },
]));

let wrong = 0;
for (const version of versions) {
    const dist = ['types', 'esm'].map((kind) => join(here, 'node_modules', version, 'dist', kind)).find((path) => existsSync(join(path, 'index.d.ts')));
    if (dist === undefined) throw new Error(`${version} is not installed, or keeps its types elsewhere`);
    const paths = { '@grafana/schema': [join(dist, 'index.d.ts')], '@grafana/schema/raw/*': [join(dist, 'raw', '*')] };
    const options = { ...common, paths };
    const host = ts.createCompilerHost(options);
    const { fileExists, readFile, getSourceFile } = host;
    host.fileExists = (name) => sources.has(name) || fileExists(name);
    host.readFile = (name) => sources.get(name)?.text ?? readFile(name);
    host.getSourceFile = (name, language) => sources.has(name)
        ? ts.createSourceFile(name, sources.get(name).text, language)
        : getSourceFile.call(host, name, language);
    const program = ts.createProgram([...sources.keys()], options, host);
    for (const { file, start, messageText } of ts.getPreEmitDiagnostics(program)) {
        wrong += 1;
        const line = file && start !== undefined ? file.getLineAndCharacterOfPosition(start).line : 0;
        const name = sources.get(file?.fileName)?.file ?? file?.fileName ?? 'options';
        console.error(`${name}:${line}: ${version}: ${ts.flattenDiagnosticMessageText(messageText, '\n')}`);
    }
}
if (wrong > 0) process.exit(1);
console.log(`${files.length} dashboards are what Grafana's schemas say: ${versions.join(', ')}`);
