// Shows the button for push messages where the browser has them, and sends the browser's push address.
"use strict";
const notify = document.getElementById("notify");
if (notify && "serviceWorker" in navigator && "PushManager" in window) {
  notify.hidden = false;
  notify.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const worker = await navigator.serviceWorker.register("/static/worker.js", { scope: "/" });
      await navigator.serviceWorker.ready;
      const old = await worker.pushManager.getSubscription();
      if (old) await old.unsubscribe();
      if (!("on" in notify.dataset)) {
        const wanted = { userVisibleOnly: true, applicationServerKey: notify.dataset.key };
        const given = (await worker.pushManager.subscribe(wanted)).toJSON();
        notify.elements.endpoint.value = given.endpoint;
        notify.elements.p256dh.value = given.keys.p256dh;
        notify.elements.auth.value = given.keys.auth;
      }
      notify.submit();
    } catch (error) {
      notify.querySelector("[role=status]").textContent = `This browser refuses: ${error.message}`;
    }
  });
}
