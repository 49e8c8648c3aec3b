// What is wrong with a page for people who use a keyboard, a screen reader or a phone: a list of sentences.
() => {
  const faults = [];
  const seen = (node) => node.getClientRects().length > 0;
  const named = (node) => (node.getAttribute('aria-label') || [...(node.labels ?? [])].map((label) => label.textContent).join('')
    || (node.getAttribute('aria-labelledby') ?? '').split(' ').map((id) => document.getElementById(id)?.textContent ?? '').join('')
    || (['INPUT', 'SELECT', 'TEXTAREA'].includes(node.tagName) ? '' : node.textContent)).trim();
  for (const node of document.querySelectorAll('a, button, input, select, textarea, summary, dialog, nav, [role=img]'))
    if (!named(node)) faults.push(`no name: ${node.outerHTML.slice(0, 120)}`);
  let level = 0;
  for (const node of [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter(seen)) {
    const next = Number(node.tagName[1]);
    if (next > level + 1) faults.push(`h${next} after h${level}: ${node.textContent}`);
    level = next;
  }
  if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
  for (const landmark of ['main', 'body > header', 'body > footer', 'body > header nav'])
    if (document.querySelectorAll(landmark).length !== 1) faults.push(`not one ${landmark}`);
  const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) faults.push(`id ${id} twice`);
  for (const name of ['aria-labelledby', 'aria-describedby', 'aria-controls'])
    for (const node of document.querySelectorAll(`[${name}]`))
      for (const id of node.getAttribute(name).split(' ')) if (!document.getElementById(id)) faults.push(`${name}=${id} leads nowhere`);
  for (const node of document.querySelectorAll('svg'))
    if (!node.closest('[aria-hidden=true]') && !node.parentElement.closest('svg') && node.getAttribute('role') !== 'img')
      faults.push(`a picture without words: ${node.outerHTML.slice(0, 80)}`);
  for (const node of document.querySelectorAll('main button, main input, main select, main summary, .site-nav a')) {
    const box = node.getBoundingClientRect();
    if (seen(node) && node.type !== 'checkbox' && box.height < 24) faults.push(`too low to hit: ${node.outerHTML.slice(0, 80)}`);
  }
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth) {
    const wide = [...document.querySelectorAll('main *')].find((node) => node.getBoundingClientRect().right > innerWidth + 1);
    faults.push(`wider than the window: ${wide?.outerHTML.slice(0, 120)}`);
  }
  if (!document.documentElement.lang) faults.push('no language');
  return faults;
}
