// Before anything is drawn: the theme that was chosen here, so that no page flashes in another one.
(function () {
  var kept = null;
  try { kept = localStorage.getItem("hal-theme"); } catch (error) { kept = null; }
  document.documentElement.dataset.theme = kept === "light" || kept === "dark" ? kept : "auto";
})();
