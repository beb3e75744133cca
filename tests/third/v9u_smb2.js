// One request by npm's v9u-smb2: node v9u_smb2.js HOST USER PASSWORD REQUEST [PATH..]
"use strict";
const Smb2 = require("v9u-smb2");

const [host, username, password, request, ...paths] = process.argv.slice(2);
const smb = new Smb2({ share: `\\\\${host}\\data`, domain: "WORKGROUP", username, password, autoCloseTimeout: 0 });
const [path, other] = paths.map((p) => p.replaceAll("/", "\\"));

function stdin() {
  return require("fs").readFileSync(0);
}

async function run() {
  switch (request) {
    case "list":
      process.stdout.write((await smb.readdir(path)).map((name) => `${name}\0`).join(""));
      break;
    case "read":
      process.stdout.write(await smb.readFile(path));
      break;
    case "write":
      await smb.writeFile(path, stdin(), { flag: "w" });
      break;
    case "rename":
      await smb.rename(path, other, { replace: true });
      break;
    case "remove":
      await smb.unlink(path);
      break;
    case "mkdir":
      await smb.mkdir(path);
      break;
    case "rmdir":
      await smb.rmdir(path);
      break;
    case "mtime":
      process.stdout.write(`${Math.floor((await smb.stat(path)).mtime.getTime() / 1000)}\n`);
      break;
    default:
      throw new Error(`no request ${request}`);
  }
}

run().then(
  () => smb.disconnect(),
  (why) => {
    console.error(why.message || why);
    process.exit(1);
  },
);
