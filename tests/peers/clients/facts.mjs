// Runs facts of one client's script, as facts.py does.
//
//     node facts.mjs SCRIPT URL VARIANT FACT...
//
// A fact is an exported function of the script.

const [script, , , ...names] = process.argv.slice(2);
const found = await import(`./${script}.mjs`);
const told = {};
for (const name of names) {
  try {
    await found[name]();
    told[name] = '';
  } catch (error) {
    told[name] = `${error.stack}\n${error.responseBody ?? error.cause?.stack ?? ''}`;
  }
}
console.log(`\n${JSON.stringify(told)}`);
