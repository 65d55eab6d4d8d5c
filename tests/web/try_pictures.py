import sys, random, shutil
from pathlib import Path
sys.path.insert(0, "tests/daemon"); sys.path.insert(0, "tests/web"); sys.path.insert(0, ".")
from harness import Harness, until
from web_process import Pages
from backdating import backdate
from playwright.sync_api import sync_playwright
d = Harness(demo={"account":"work"}, raw='[web]\nport = 7777\n[backends.second]\nkind = "demo"\naccount = "team"\n[backends.third]\nkind="demo"\naccount="other"\nmodel="demo-2"')
d.start()
random.seed(3)
days = {}
def run(prompt, **p):
    new = d.call("session/new", **{"backend":"demo","cwd":str(d.cwd), **p})["session_id"]
    d.call("session/prompt", session_id=new, prompt=prompt, wait=True)
    return new
for back in range(29, -1, -1):
    for b in ("demo", "second", "third"):
        if random.random() < .6:
            days[run(f"@usage {random.randint(1000,90000)} {random.randint(100,9000)}\n@cost {random.random()*3:.4f}\nDone.", backend=b, title=f"Job {back} <script>alert(1)</script>" if back<4 else f"Job {back}", model="demo-large" if b=="demo" else None)] = back
bud = run("@cost 1.2\nHi", budget={"usd": 2.0}, title="Refactor the parser")
d.call("session/prompt", session_id=bud, prompt="@cost 0.5\nmore", wait=True)
bud2 = run("@cost 1.2\nHi", budget={"usd": 20.0, "tokens": 5000}, title="Nightly")
backdate(d, days)
run("@limit 8000", title="Hits the limit")
for t in ("Review the parser", "Write the release notes"):
    new = d.call("session/new", backend="demo", cwd=str(d.cwd), title=t)["session_id"]
    d.call("session/prompt", session_id=new, prompt="Hi")
pages = Pages(d); pages.start()
out = Path("/tmp/w2_pics"); out.mkdir(exist_ok=True)
try:
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, vp in (("phone", (390,844)), ("desktop",(1280,800))):
            for scheme in ("light","dark"):
                page = browser.new_context(viewport={"width":vp[0],"height":vp[1]}, color_scheme=scheme).new_page()
                page.on("console", lambda l: print(l.type, l.text)); page.on("pageerror", lambda e: print(e))
                page.goto(f"{pages.origin}/login?code={pages.book.add_link('x','drive')}")
                page.wait_for_selector("#cards .card")
                for title, path in (("cost","/cost"),("budget",f"/cost?session={bud}"),("accounts","/accounts")):
                    page.goto(pages.origin+path); page.wait_for_timeout(1200)
                    print(title, page.evaluate("document.documentElement.scrollWidth"))
                    page.screenshot(path=str(out/f"{title}-{name}-{scheme}.png"), full_page=title=="cost" and name=="phone" and scheme=="light")
finally:
    print((d.root/"web.log").read_text()[-2500:]); pages.end(); d.close()
